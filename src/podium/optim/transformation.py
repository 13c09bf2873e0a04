"""LARS for any program that trains with optax: the arithmetic of `rules.LarsRule` as a gradient transformation, to be
chained, scheduled and wrapped like optax's own. Podium's step takes the rule itself, which can also update shards.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from podium.optim.rules import LarsRule, is_adapted
from podium.optim.updating import norms


class LarsState(NamedTuple):
    step: jax.Array
    """int32: how many updates there were, for a schedule."""
    momentum: Any
    """A tree like the weights."""


def lars(
    learning_rate: float | jax.Array | optax.Schedule,
    *,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
    trust: float = 0.001,
    variant: Literal["tf", "scaled_momentum"] = "tf",
    adapted: Callable[[Any], bool] = is_adapted,
) -> optax.GradientTransformation:
    """LARS in the form that trained ResNet-50 at large batches, as an optax transformation.

    `learning_rate` is a number or a function of the step. Weights for which `adapted` is false (by default those of
    one dimension: batch norm and biases) take plain momentum steps without weight decay. `optax.lars` differs from it:
    it decays before it takes the gradient's norm, and has momentum of the second `variant` alone.

    >>> import jax.numpy as jnp, optax
    >>> from podium import lars
    >>> weights = {"kernel": jnp.ones((2, 2)), "bias": jnp.zeros(2)}
    >>> optimizer = optax.chain(optax.clip_by_global_norm(1.0), lars(2.0, weight_decay=0.0))
    >>> state = optimizer.init(weights)
    >>> updates, state = optimizer.update(weights, state, weights)
    >>> float(updates["kernel"][0, 0])  # 2.0 · 0.001 · ‖w‖ / ‖g‖ · g
    -0.0020000000949949026
    """
    rule = LarsRule(momentum, weight_decay, trust, variant == "scaled_momentum")

    def init(weights: Any) -> LarsState:
        return LarsState(jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, weights))

    def update(gradients: Any, state: LarsState, weights: Any = None) -> tuple[Any, LarsState]:
        if weights is None:
            raise ValueError("LARS needs the weights: call update(gradients, state, weights)")
        rate = learning_rate(state.step) if callable(learning_rate) else learning_rate
        leaves, treedef = jax.tree.flatten(weights)
        of_each = zip(leaves, *map(jax.tree.leaves, (gradients, state.momentum)), strict=True)
        weight_norms, gradient_norms = norms(leaves), norms(gradients)
        steps, momenta = [], []
        for k, (weight, gradient, remembered) in enumerate(of_each):
            step, slots = rule.step(
                weight, gradient, {"momentum": remembered}, rate=rate, adapted=adapted(weight),
                weight_norm=weight_norms[k], gradient_norm=gradient_norms[k],
            )  # fmt: skip
            steps.append(-step)
            momenta.append(slots["momentum"])
        new = LarsState(optax.safe_increment(state.step), jax.tree.unflatten(treedef, momenta))
        return jax.tree.unflatten(treedef, steps), new

    return optax.GradientTransformation(init, update)
