"""From each chip's own gradients to new weights: summed over the torus, then the optimizer's rule. Either every chip
sums everything and updates all weights, or each gets the sum of its shard, updates that, and all gather the result:
then the rule's work and the momenta are 1/N per chip, and sockets carry no more. `build_update(recipe, mesh)` gives
the one that a recipe asks for; both run inside `jax.shard_map`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from podium import optim
from podium.mesh import AXES, LANE_AXES, X_AXES, Y_AXES, is_cpu
from podium.recipe.schema import Recipe
from podium.reduce import REDUCTIONS, Reduction, TorusAxes, own_shard, plan_buckets

_SHARDED_FROM_CHIPS = 8
TORUS_AXES = TorusAxes(Y_AXES, X_AXES, LANE_AXES)


class WeightUpdate(Protocol):
    @property
    def momenta_spec(self) -> PartitionSpec: ...

    def start(self, params: Any) -> Any:
        """Momenta of zero, in global shapes."""

    def __call__(self, params: Any, momenta: Any, gradients: Any, rate: jax.Array, others: Any) -> tuple[Any, Any, Any]:
        """New weights, new momenta and the sum of the small tree `others`, from one chip's gradients."""

    def portable(self, momenta: Any, params: Any) -> Any:
        """The momenta in the shapes of their weights, as checkpoints have them: the same for any number of chips."""

    def resumed(self, portable: Any) -> Any:
        """What `portable` undoes."""


def build_update(recipe: Recipe, mesh: Mesh) -> WeightUpdate:
    """`reduce = auto` that nobody has settled by a measurement is the compiler's own."""
    rule = optim.build_rule(recipe.optimizer)
    reduction = REDUCTIONS["xla" if recipe.reduce == "auto" else recipe.reduce](TORUS_AXES)
    bucket_bytes = bucket_size_bytes(recipe)
    if is_sharded(recipe, mesh.size, on_cpu=is_cpu(mesh)):
        return Sharded(rule, reduction, bucket_bytes, mesh.size)
    if recipe.reduce in ("auto", "xla") or mesh.size == 1:
        return Replicated(rule, lambda tree: lax.psum(tree, AXES))  # XLA combines the tree as the platform likes
    return Replicated(rule, lambda tree: sum_in_buckets(tree, reduction, bucket_bytes))


def is_sharded(recipe: Recipe, chips: int, on_cpu: bool) -> bool:
    """`auto` shards where that was seen to be faster: on 16 chips that a CPU simulates; on 4, runs disagree
    (results/update). For a TPU pod the compiler makes full sums of the scatter and of the gather, and the plan of a
    replicated update is the faster one (results/plan); on GPUs nobody has measured."""
    if recipe.weight_update == "auto":
        return on_cpu and chips >= _SHARDED_FROM_CHIPS
    return chips > 1 and recipe.weight_update == "sharded"


def bucket_size_bytes(recipe: Recipe) -> int:
    return int(recipe.bucket_mb * 1e6)


def sum_in_buckets(tree: Any, reduction: Reduction, bucket_bytes: int) -> Any:
    buckets = plan_buckets(tree, bucket_bytes)
    return buckets.unpack([reduction.all_reduce(flat) for flat in buckets.pack(tree)])


@dataclass(frozen=True)
class Replicated:
    """Every chip sums all gradients and updates all weights."""

    rule: optim.Rule
    total: Callable[[Any], Any]
    momenta_spec = PartitionSpec()

    def start(self, params: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, params)

    def __call__(self, params: Any, momenta: Any, gradients: Any, rate: jax.Array, others: Any) -> tuple[Any, Any, Any]:
        gradients, others = self.total((gradients, others))
        return *optim.update(self.rule, params, gradients, momenta, rate), others

    def portable(self, momenta: Any, params: Any) -> Any:
        return momenta

    def resumed(self, portable: Any) -> Any:
        return portable


@dataclass(frozen=True)
class Sharded:
    """Every weight is cut into one piece per chip; momenta are flat vectors, each chip holding its piece."""

    rule: optim.Rule
    reduction: Reduction
    bucket_bytes: int
    chips: int

    @property
    def momenta_spec(self) -> PartitionSpec:
        return PartitionSpec(self.reduction.axes.all)

    def start(self, params: Any) -> Any:
        return self.resumed(jax.tree.map(jnp.zeros_like, params))

    def __call__(self, params: Any, momenta: Any, gradients: Any, rate: jax.Array, others: Any) -> tuple[Any, Any, Any]:
        buckets, chips = plan_buckets(params, self.bucket_bytes), self.chips
        axes, sum_shards = self.reduction.axes, self.reduction.reduce_scatter
        own_sums = buckets.unpack_shard([sum_shards(flat) for flat in buckets.pack(gradients, chips)], chips)
        own_weights = buckets.unpack_shard([own_shard(flat, axes) for flat in buckets.pack(params, chips)], chips)
        adapted = jax.tree.map(optim.is_adapted, params)
        own_weights, momenta = optim.update(
            self.rule, own_weights, own_sums, momenta, rate, adapted, total=self.reduction.all_reduce
        )
        parts = buckets.pack_shard(own_weights)
        weights = buckets.unpack([self.reduction.all_gather(part, part.size * chips) for part in parts], chips)
        return weights, momenta, sum_in_buckets(others, self.reduction, self.bucket_bytes)

    def portable(self, momenta: Any, params: Any) -> Any:
        return jax.tree.map(lambda flat, weight: flat[: weight.size].reshape(weight.shape), momenta, params)

    def resumed(self, portable: Any) -> Any:
        return jax.tree.map(lambda m: jnp.pad(m.reshape(-1), (0, -m.size % self.chips)), portable)
