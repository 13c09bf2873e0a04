"""From each chip's own gradients to new weights: summed over the torus, then the optimizer's rule. Either every chip
sums everything and updates all weights (`Replicated`), or each gets the sum of its shard, updates that, and all gather
the result (`Sharded`): then the rule's work and the slots are 1/N per chip, and the wires carry no more.
`build_update(recipe, mesh)` gives the one that a recipe asks for; both run inside `jax.shard_map`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from podium import optim
from podium.mesh import AXES, LANE_AXES, X_AXES, Y_AXES, is_cpu
from podium.recipe.schema import Recipe
from podium.reduce import REDUCTIONS, Reduction, Rows, TorusAxes, own_number, own_shard, plan_buckets
from podium.step.state import Metrics, State

_SHARDED_FROM_CHIPS = 8
_ONE_BUCKET = 2**62
TORUS_AXES = TorusAxes(Y_AXES, X_AXES, LANE_AXES)


@dataclass(frozen=True)
class Updated:
    state: State
    others: Any
    """The sum over all chips of the small tree that was given along."""
    metrics: Metrics


class WeightUpdate(Protocol):
    @property
    def rule(self) -> optim.Rule: ...

    @property
    def specs(self) -> State:
        """Which parts of a state are divided among the chips."""

    def __call__(self, state: State, gradients: Any, rate: jax.Array, *, others: Any) -> Updated:
        """New weights and slots, and the sum of the small tree `others`, from one chip's gradients."""

    def portable(self, state: State) -> State:
        """The state as checkpoints have it: every slot in the shapes of the weights, the same for any number of
        chips."""

    def resumed(self, portable: State) -> State:
        """What `portable` undoes. Takes new norms of the weights where the portable state has none."""


def build_update(recipe: Recipe, mesh: Mesh) -> WeightUpdate:
    """`reduce = auto` that nobody has settled by a measurement is the compiler's own."""
    rule = optim.build_rule(recipe.optimizer)
    reduction = REDUCTIONS["xla" if recipe.reduce == "auto" else recipe.reduce](TORUS_AXES)
    bucket_bytes = bucket_size_bytes(recipe)
    if is_sharded(recipe, mesh.size, on_cpu=is_cpu(mesh)):
        # Chips with links of their own gain nothing from buckets, each of which is padded to whole rows for all chips.
        return Sharded(rule, reduction, bucket_bytes if is_cpu(mesh) else _ONE_BUCKET, mesh.size)
    if recipe.reduce in ("auto", "xla") or mesh.size == 1:
        return Replicated(rule, lambda tree: lax.psum(tree, AXES))  # XLA combines the tree as the platform likes
    return Replicated(rule, lambda tree: sum_in_buckets(tree, reduction, bucket_bytes))


def is_sharded(recipe: Recipe, chips: int, on_cpu: bool) -> bool:
    """`auto` shards where that was seen to be faster: on 16 chips that a CPU simulates; on 4, runs disagree
    (results/update). For a TPU pod the plan of a replicated update is the faster one (results/plan); on GPUs nobody
    has measured."""
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
    specs = State(P(), P(), P(), P(), P(), P())

    def __call__(self, state: State, gradients: Any, rate: jax.Array, *, others: Any) -> Updated:
        gradients, others = self.total((gradients, others))
        new = optim.update(
            self.rule, state.params, gradients, slots=state.slots, rate=rate, weight_norms=state.weight_norms
        )
        state = replace(state, params=new.weights, slots=new.slots, weight_norms=new.weight_norms)
        return Updated(state, others, new.metrics)

    def portable(self, state: State) -> State:
        return state

    def resumed(self, portable: State) -> State:
        return _with_norms(portable, self.rule)


@dataclass(frozen=True)
class Sharded:
    """Every chip sums and updates its rows of all weights (`reduce.rows`), and keeps them: `state.own_weights` and each
    slot are float32 [rows of all chips, 8, 128], divided by rows."""

    rule: optim.Rule
    reduction: Reduction
    bucket_bytes: int
    chips: int

    @property
    def specs(self) -> State:
        by_rows = P(self.reduction.axes.all)
        return State(P(), P(), P(), slots=by_rows, weight_norms=P(), own_weights=by_rows)

    def __call__(self, state: State, gradients: Any, rate: jax.Array, *, others: Any) -> Updated:
        rows = self._rows(state.params)
        own_gradients = jnp.concatenate([self.reduction.reduce_scatter(buffer) for buffer in rows.pack(gradients)])
        leaves = _OwnLeaves(rows, own_number(self.reduction.axes))
        gradient_squares = leaves.squares(own_gradients)
        if self.rule.needs_norms:  # a rule that does not may learn of them later, along with everything else
            gradient_squares = self.reduction.all_reduce(gradient_squares)
        own_weights, slots = self.rule(
            state.own_weights, own_gradients, state.slots, rate=rate, adapted=leaves.of_rows(leaves.adapted),
            weight_norm=leaves.of_rows(state.weight_norms), gradient_norm=leaves.of_rows(jnp.sqrt(gradient_squares)),
        )  # fmt: skip
        small = {"others": others, "weights": leaves.squares(own_weights)}
        if not self.rule.needs_norms:
            small["gradients"] = gradient_squares
        small = sum_in_buckets(small, self.reduction, self.bucket_bytes)
        norms, gradient_norms = jnp.sqrt(small["weights"]), jnp.sqrt(small.get("gradients", gradient_squares))
        new = replace(
            state, params=self._gathered(own_weights, rows), slots=slots, own_weights=own_weights,
            weight_norms=norms if self.rule.needs_norms else None,
        )  # fmt: skip
        metrics = optim.norm_metrics(gradient_norms, norms)
        metrics |= self.rule.metrics(state.weight_norms, gradient_norms, leaves.adapted)
        return Updated(new, small["others"], metrics)

    def portable(self, state: State) -> State:
        rows = self._rows(state.params)
        slots = {name: self._gathered(own, rows) for name, own in state.slots.items()}
        return replace(state, slots=slots, own_weights=None)

    def resumed(self, portable: State) -> State:
        rows = self._rows(portable.params)
        slots = {name: self._own(whole, rows) for name, whole in portable.slots.items()}
        own_weights = self._own(portable.params, rows)
        return replace(_with_norms(portable, self.rule), slots=slots, own_weights=own_weights)

    def _rows(self, params: Any) -> Rows:
        return Rows(plan_buckets(params, self.bucket_bytes), self.chips)

    def _own(self, whole: Any, rows: Rows) -> jax.Array:
        return jnp.concatenate([own_shard(buffer, self.reduction.axes) for buffer in rows.pack(whole)])

    def _gathered(self, own: jax.Array, rows: Rows) -> Any:
        parts = rows.split(own)
        return rows.unpack([self.reduction.all_gather(part, self.chips * part.shape[0]) for part in parts])


class _OwnLeaves:
    """Which leaf each of a chip's rows belongs to, as a table of zeros and ones: sums by leaf and values by row are
    then products with it, which TPUs do at once, and no scatter or gather."""

    def __init__(self, rows: Rows, chip: jax.Array) -> None:
        leaf_of_row = jnp.asarray(rows.leaf_of_row())[chip]
        self._is_of = leaf_of_row[:, None] == jnp.arange(len(rows.buckets.leaves))
        self.adapted = jnp.array([optim.is_adapted(leaf) for leaf in rows.buckets.leaves])

    def squares(self, own: jax.Array) -> jax.Array:
        """This chip's share of the sum of squares of every leaf."""
        return jnp.where(self._is_of, jnp.square(own).sum((1, 2))[:, None], 0.0).sum(0)

    def of_rows(self, of_leaves: jax.Array | None) -> Any:
        """[rows, 1, 1]: the value of each row's leaf; 0 for rows that belong to none."""
        if of_leaves is None:
            return 0.0
        of_rows = jnp.where(self._is_of, of_leaves, jnp.zeros((), of_leaves.dtype))
        return (of_rows.any(1) if of_leaves.dtype == bool else of_rows.sum(1))[:, None, None]


def _with_norms(state: State, rule: optim.Rule) -> State:
    """With norms for a rule that asks for them, and without for one that does not."""
    if not rule.needs_norms:
        return replace(state, weight_norms=None)
    return state if state.weight_norms is not None else replace(state, weight_norms=optim.norms(state.params))
