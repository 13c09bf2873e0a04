"""The one function through which a step sums over the torus: `build_sum(recipe, mesh)` gives tree → summed tree.
XLA's own psum takes the tree as it is and combines it as the platform likes; the explicit algorithms of
`podium.reduce` get it as a few flat buckets.
"""

from collections.abc import Callable
from typing import Any

from jax import lax
from jax.sharding import Mesh

from podium.recipe import Recipe
from podium.reduce import Reduction, TorusAxes, plan_buckets, ring, torus
from podium.topology import AXES, X_AXES, Y_AXES

Sum = Callable[[Any], Any]


def build_sum(recipe: Recipe, mesh: Mesh) -> Sum:
    axes = TorusAxes(Y_AXES, X_AXES)
    algorithms: dict[str, Callable[[TorusAxes], Reduction]] = {"ring": ring, "torus": torus}
    if recipe.reduce not in algorithms or mesh.size == 1:
        return lambda tree: lax.psum(tree, AXES)
    return in_buckets(algorithms[recipe.reduce](axes), int(recipe.bucket_mb * 1e6))


def in_buckets(reduction: Reduction, bucket_bytes: int) -> Sum:
    def total(tree: Any) -> Any:
        buckets = plan_buckets(tree, bucket_bytes)
        return buckets.unpack([reduction.all_reduce(flat) for flat in buckets.pack(tree)])

    return total
