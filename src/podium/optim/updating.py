"""A rule over all weights of a network: the norms that it asks for, its arithmetic tensor by tensor, and what is worth
reporting. Nothing here communicates: gradients come in summed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from podium.optim.own import OwnRule
from podium.optim.rules import Rule, Slots, is_adapted


@dataclass(frozen=True)
class Updated:
    weights: Any
    slots: Slots
    weight_norms: jax.Array | None
    """The norms of the new weights, one per tensor; None if the rule needs none."""
    metrics: dict[str, jax.Array]


def zero_slots(rule: Rule, weights: Any) -> Slots:
    """What a rule remembers before the first step."""
    if isinstance(rule, OwnRule):
        return rule.first_slots(weights)
    return {name: jax.tree.map(jnp.zeros_like, weights) for name in rule.slots}


def norms(tensors: Any) -> jax.Array:
    """The norm of each tensor."""
    return jnp.sqrt(jnp.stack([_square(t) for t in jax.tree.leaves(tensors)]))


def _square(tensor: jax.Array) -> jax.Array:
    return jnp.vdot(tensor, tensor, precision="highest")  # TPUs would round the tensor first


def update(
    rule: Rule,
    weights: Any,
    gradients: Any,
    *,
    slots: Slots,
    rate: jax.Array | Sequence[jax.Array],
    step: jax.Array | int,
    weight_norms: jax.Array | None,
) -> Updated:
    """`rate` is one for all tensors or one for each. `weight_norms` are those of `weights`, carried from the update
    that made them. Norms taken where a tensor is read or written anyway cost a TPU next to nothing: for ResNet-50 SGD
    takes 1.287 M cycles with both and 1.268 without, LARS 1.776 where another pass over all weights made it 2.267
    (v3:4x4)."""
    if isinstance(rule, OwnRule):
        new_weights, new_slots = rule.updated(weights, gradients, slots)
        return Updated(new_weights, new_slots, None, norm_metrics(norms(gradients), norms(new_weights)))
    leaves, treedef = jax.tree.flatten(weights)
    adapted = [is_adapted(leaf) for leaf in leaves]
    raw_norms = gradient_norms = norms(gradients)
    factor = clip_factor(raw_norms, rule.clip_norm)
    given = jax.tree.leaves(gradients)
    rates = rate if isinstance(rate, Sequence) else [rate] * len(leaves)
    slots_of_leaf = [
        dict(zip(slots, values, strict=True)) for values in zip(*map(jax.tree.leaves, slots.values()), strict=True)
    ]
    if factor is not None:
        given, gradient_norms = [factor * gradient for gradient in given], factor * raw_norms
    if rule.prepares:
        ready = [
            rule.prepared(*of_leaf, step=step, adapted=is_kernel)
            for *of_leaf, is_kernel in zip(leaves, given, slots_of_leaf, adapted, strict=True)
        ]
        given, slots_of_leaf = [gradient for gradient, _ in ready], [new for _, new in ready]
        gradient_norms = norms(given)
    updated = [
        rule(
            weight, gradient, slots_of_leaf[k], rate=rates[k], adapted=adapted[k],
            weight_norm=0.0 if weight_norms is None else weight_norms[k], gradient_norm=gradient_norms[k],
        )
        for k, (weight, gradient) in enumerate(zip(leaves, given, strict=True))
    ]  # fmt: skip
    new_weights = [weight for weight, _ in updated]
    new_slots = {name: jax.tree.unflatten(treedef, [of_leaf[name] for _, of_leaf in updated]) for name in slots}
    new_norms = norms(new_weights)
    return Updated(
        weights=jax.tree.unflatten(treedef, new_weights),
        slots=new_slots,
        weight_norms=new_norms if rule.needs_norms else None,
        metrics=norm_metrics(raw_norms, new_norms) | rule.metrics(weight_norms, gradient_norms, jnp.array(adapted)),
    )


def clip_factor(gradient_norms: jax.Array, longest: float) -> jax.Array | None:
    """What all gradients are multiplied by so that together they are no longer than `longest`; None for no limit."""
    if not longest:
        return None
    return jnp.minimum(1.0, longest / jnp.maximum(jnp.linalg.norm(gradient_norms), 1e-12))


def norm_metrics(gradient_norms: jax.Array, new_weight_norms: jax.Array) -> dict[str, jax.Array]:
    """The length of the whole gradient, and that of all weights after the update."""
    return {"gradient_norm": jnp.linalg.norm(gradient_norms), "weight_norm": jnp.linalg.norm(new_weight_norms)}
