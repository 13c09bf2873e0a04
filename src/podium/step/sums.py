"""Sums over the torus as a weight update wants them: of gradients, in the number format that the recipe asks for, and
of everything else in fp32, each packed into a few buckets.
"""

from dataclasses import dataclass
from typing import Any

import jax

from podium.mesh import LANE_AXES, X_AXES, Y_AXES
from podium.reduce import Reduction, Sockets, TorusAxes, plan_buckets

TORUS_AXES = TorusAxes(Y_AXES, X_AXES, LANE_AXES)


@dataclass(frozen=True)
class Sums:
    """Sums in buckets of so many bytes: of gradients, as the recipe's `gradient_sum` says, and of all else in fp32."""

    of_gradients: Reduction
    of_others: Reduction
    bucket_bytes: int

    def all(self, gradients: Any, others: Any) -> tuple[Any, Any]:
        if self.of_gradients == self.of_others:
            return self._total((gradients, others), self.of_others)
        return self._total(gradients, self.of_gradients), self.small(others)

    def small(self, others: Any) -> Any:
        return self._total(others, self.of_others)

    def _total(self, tree: Any, reduction: Reduction) -> Any:
        buckets = plan_buckets(tree, self.bucket_bytes)
        if isinstance(reduction, Sockets):  # each starts as its bucket is there, while the backward pass goes on
            return buckets.unpack(reduction.all_reduce_each(buckets.pack(tree)))
        return buckets.unpack([reduction.all_reduce(flat) for flat in buckets.pack(tree)])

    def scattered(self, buffers: list[jax.Array]) -> list[jax.Array]:
        """This device's shard of the sum of each buffer of gradients."""
        if isinstance(self.of_gradients, Sockets):
            return self.of_gradients.reduce_scatter_each(buffers)
        return [self.of_gradients.reduce_scatter(buffer) for buffer in buffers]
