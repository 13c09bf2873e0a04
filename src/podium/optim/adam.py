"""AdamW and LAMB. Both replace the gradient by Adam's direction first, elementwise; LAMB then asks for its
norms. See `rules` for what a rule is.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from podium.optim.rules import Slots, extremes


@dataclass(frozen=True)
class Moments:
    """m ← β₁m + (1 − β₁)g;  v ← β₂v + (1 − β₂)g²;  direction m̂ / (√v̂ + ε), where m̂ = m / (1 − β₁ᵗ) and v̂ alike."""

    beta1: float
    beta2: float
    epsilon: float

    def __call__(self, gradient: Any, slots: Slots, step: Any) -> tuple[Any, Slots]:
        mean = self.beta1 * slots["mean"] + (1 - self.beta1) * gradient
        square = self.beta2 * slots["square"] + (1 - self.beta2) * gradient * gradient
        count = jnp.asarray(step, jnp.float32) + 1
        unbiased = mean / (1 - self.beta1**count), square / (1 - self.beta2**count)
        return unbiased[0] / (jnp.sqrt(unbiased[1]) + self.epsilon), {"mean": mean, "square": square}


@dataclass(frozen=True)
class AdamWRule:
    """w ← w − rate·(direction + βw), β on adapted elements alone."""

    moments: Moments
    weight_decay: float
    clip_norm: float = 0.0
    slots = ("mean", "square")
    prepares = True
    needs_norms = needs_whole = False

    def prepared(self, weight: Any, gradient: Any, slots: Slots, *, step: Any, adapted: Any) -> tuple[Any, Slots]:
        direction, slots = self.moments(gradient, slots, step)
        return direction + jnp.where(adapted, self.weight_decay, 0.0) * weight, slots

    def __call__(self, weight, gradient, slots, *, rate, adapted, weight_norm, gradient_norm):  # type: ignore[no-untyped-def]
        return weight - rate * gradient, slots

    def metrics(self, weight_norms: Any, gradient_norms: jax.Array, adapted: jax.Array) -> dict[str, jax.Array]:
        return {}


@dataclass(frozen=True)
class LambRule:
    """r = direction + βw;  w ← w − rate·(‖w‖ / ‖r‖)·r; the ratio is 1 where either norm is 0, and for what is not
    adapted (You et al. 2019)."""

    moments: Moments
    weight_decay: float
    clip_norm: float = 0.0
    slots = ("mean", "square")
    prepares = needs_norms = True
    needs_whole = False

    def prepared(self, weight: Any, gradient: Any, slots: Slots, *, step: Any, adapted: Any) -> tuple[Any, Slots]:
        direction, slots = self.moments(gradient, slots, step)
        return direction + jnp.where(adapted, self.weight_decay, 0.0) * weight, slots

    def __call__(self, weight, gradient, slots, *, rate, adapted, weight_norm, gradient_norm):  # type: ignore[no-untyped-def]
        return weight - rate * self.trust_ratio(weight_norm, gradient_norm, adapted) * gradient, slots

    def trust_ratio(self, weight_norm: Any, gradient_norm: Any, adapted: Any) -> jax.Array:
        usable = (weight_norm > 0) & (gradient_norm > 0) & adapted
        return jnp.where(usable, weight_norm / jnp.where(usable, gradient_norm, 1.0), 1.0)

    def metrics(self, weight_norms: Any, gradient_norms: jax.Array, adapted: jax.Array) -> dict[str, jax.Array]:
        """The smallest and the largest trust ratio of the adapted tensors."""
        return extremes(self.trust_ratio(weight_norms, gradient_norms, adapted), adapted)
