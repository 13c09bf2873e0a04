"""Muon (Jordan et al. 2024): the momentum of a convolution, as a matrix of output channels by the rest, is replaced by
the orthogonal matrix nearest to it, which Newton–Schulz's iteration approaches with products alone. A product needs
the whole matrix, so this rule takes no shards.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from podium.optim.rules import Slots

# Coefficients of the iteration that bring singular values near 1 fastest, not exactly to it (Jordan et al.).
_A, _B, _C = 3.4445, -4.7750, 2.0315


@dataclass(frozen=True)
class MuonRule:
    """Convolutions: m ← μm + g;  w ← √n·w/‖w‖ with `unit_weights`, n output channels;  w ← w − rate·(O(g + μm) + βw).
    All else: SGD with Nesterov's momentum `other_momentum`, weight decay on matrices, and `other_rate` times the rate.
    """

    momentum: float
    iterations: int
    unit_weights: bool
    weight_decay: float
    other_rate: float
    other_momentum: float
    clip_norm: float = 0.0
    slots = ("momentum",)
    needs_norms = prepares = False
    needs_whole = True

    def prepared(self, weight: Any, gradient: Any, slots: Slots, *, step: Any, adapted: Any) -> tuple[Any, Slots]:
        return gradient, slots

    def __call__(self, weight, gradient, slots, *, rate, adapted, weight_norm, gradient_norm):  # type: ignore[no-untyped-def]
        if weight.ndim < 3:
            gradient = gradient + (self.weight_decay if weight.ndim == 2 else 0.0) * weight
            momentum = self.other_momentum * slots["momentum"] + gradient
            step = self.other_rate * rate * (gradient + self.other_momentum * momentum)
            return weight - step, {"momentum": momentum}
        momentum = self.momentum * slots["momentum"] + gradient
        ahead = gradient + self.momentum * momentum
        matrix = ahead.reshape(-1, weight.shape[-1]).T  # output channels stand last in a kernel
        direction = orthogonal(matrix, self.iterations).T.reshape(weight.shape)
        if self.unit_weights:
            length = jnp.sqrt(jnp.vdot(weight, weight, precision="highest"))
            weight = weight * jnp.where(length > 0, weight.shape[-1] ** 0.5 / jnp.where(length > 0, length, 1.0), 1.0)
        return weight - rate * (direction + self.weight_decay * weight), {"momentum": momentum}

    def metrics(self, weight_norms: Any, gradient_norms: jax.Array, adapted: jax.Array) -> dict[str, jax.Array]:
        return {}


def orthogonal(matrix: jax.Array, iterations: int) -> jax.Array:
    """About UVᵀ of the matrix UΣVᵀ: all singular values between 0.7 and 1.2 where they were not tiny."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix) / (jnp.linalg.norm(matrix) + 1e-7)
    for _ in range(iterations):
        square = x @ x.T
        x = _A * x + (_B * square + _C * square @ square) @ x
    return x.T if tall else x
