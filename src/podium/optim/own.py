"""An optimizer of the caller's own: any optax transformation, over all weights at once. Its state is carried and saved
as a list of arrays. It may look at whole tensors and at all of them together, so its update is not sharded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import optax

from podium.optim.rules import Slots

OwnOptimizer: TypeAlias = optax.GradientTransformation | Callable[[optax.Schedule], optax.GradientTransformation]
"""A transformation whose updates are added to the weights as they are, or a function that makes one from the recipe's
learning rate (a function of the step)."""


@dataclass(frozen=True)
class OwnRule:
    transformation: optax.GradientTransformation
    slots = ("own",)
    clip_norm = 0.0
    needs_norms = prepares = False
    needs_whole = True

    def first_slots(self, weights: Any) -> Slots:
        return {"own": jax.tree.leaves(self.transformation.init(weights))}

    def updated(self, weights: Any, gradients: Any, slots: Slots) -> tuple[Any, Slots]:
        """New weights and slots, of all tensors."""
        structure = jax.tree.structure(jax.eval_shape(self.transformation.init, weights))
        state = jax.tree.unflatten(structure, slots["own"])
        updates, state = self.transformation.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), {"own": jax.tree.leaves(state)}

    def prepared(self, weight: Any, gradient: Any, slots: Slots, *, step: Any, adapted: Any) -> tuple[Any, Slots]:
        return gradient, slots

    def __call__(self, weight, gradient, slots, **_):  # type: ignore[no-untyped-def]
        raise NotImplementedError("an optimizer of one's own updates all tensors at once: updated()")

    def metrics(self, weight_norms: Any, gradient_norms: jax.Array, adapted: jax.Array) -> dict[str, jax.Array]:
        return {}


def own_rule(optimizer: OwnOptimizer, rate: optax.Schedule) -> OwnRule:
    if isinstance(optimizer, optax.GradientTransformation):
        return OwnRule(optimizer)
    return OwnRule(optimizer(rate))
