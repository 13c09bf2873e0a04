"""A rule over all weights of a network: the norms that it asks for, its arithmetic tensor by tensor, and what is worth
reporting. Nothing here communicates: gradients come in summed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from podium.optim.rules import Rule, Slots, is_adapted


@dataclass(frozen=True)
class Updated:
    weights: Any
    slots: Slots
    weight_norms: jax.Array | None
    """The norms of the new weights, one per tensor; None if the rule needs none."""
    metrics: dict[str, jax.Array]


def zero_slots(rule: Rule, weights: Any) -> Slots:
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
    rate: jax.Array,
    factors: Sequence[float] | None = None,
    weight_norms: jax.Array | None,
) -> Updated:
    """`factors` multiply the rate of each tensor. `weight_norms` are those of `weights`, carried from the update that
    made them. Norms taken where a tensor is read
    or written anyway cost a TPU next to nothing: for ResNet-50 SGD takes 1.287 M cycles with both and 1.268 without,
    LARS 1.776 where another pass over all weights made it 2.267 (v3:4x4)."""
    leaves, treedef = jax.tree.flatten(weights)
    adapted = [is_adapted(leaf) for leaf in leaves]
    gradient_norms = norms(gradients)
    rates = [rate if factor == 1.0 else factor * rate for factor in factors or [1.0] * len(leaves)]
    slots_of_leaf = [
        dict(zip(slots, values, strict=True)) for values in zip(*map(jax.tree.leaves, slots.values()), strict=True)
    ]
    updated = [
        rule(
            weight, gradient, slots_of_leaf[k], rate=rates[k], adapted=adapted[k],
            weight_norm=0.0 if weight_norms is None else weight_norms[k], gradient_norm=gradient_norms[k],
        )
        for k, (weight, gradient) in enumerate(zip(leaves, jax.tree.leaves(gradients), strict=True))
    ]  # fmt: skip
    new_weights = [weight for weight, _ in updated]
    new_slots = {name: jax.tree.unflatten(treedef, [of_leaf[name] for _, of_leaf in updated]) for name in slots}
    new_norms = norms(new_weights)
    return Updated(
        weights=jax.tree.unflatten(treedef, new_weights),
        slots=new_slots,
        weight_norms=new_norms if rule.needs_norms else None,
        metrics=norm_metrics(gradient_norms, new_norms)
        | rule.metrics(weight_norms, gradient_norms, jnp.array(adapted)),
    )


def norm_metrics(gradient_norms: jax.Array, new_weight_norms: jax.Array) -> dict[str, jax.Array]:
    """The length of the whole gradient, and that of all weights after the update."""
    return {"gradient_norm": jnp.linalg.norm(gradient_norms), "weight_norm": jnp.linalg.norm(new_weight_norms)}
