"""From each chip's own gradients to new weights: summed over the torus, then the optimizer's rule. Either every chip
sums everything and updates all weights (`replicated_update.Replicated`, for TPUs `joined_update.Joined`, for GPUs
`flat_update.Flat`), or each gets the sum of its shard, updates that, and all gather the result (`Sharded`): then the
rule's work and the slots are 1/N per chip, and the wires carry no more.
`build_update` gives the one that a recipe asks for; all run inside `jax.shard_map`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from podium import optim
from podium.errors import UserError
from podium.mesh import AXES, is_cpu, is_gpu, is_tpu
from podium.recipe.optimization import Muon
from podium.recipe.schema import Recipe
from podium.reduce import REDUCTIONS, Rows, links, own_number, own_shard, plan_buckets
from podium.step.flat_update import Flat
from podium.step.joined_update import Joined
from podium.step.layer_rates import Factors, rate_factors
from podium.step.leaves import OwnLeaves, with_norms
from podium.step.replicated_update import Replicated, Trees
from podium.step.state import State, Updated
from podium.step.sums import TORUS_AXES, Sums

_SHARDED_FROM_CHIPS = 8
_ONE_BUCKET = 2**62
_WIRES = {"fp32": jnp.float32, "bf16": jnp.bfloat16}


class WeightUpdate(Protocol):
    @property
    def rule(self) -> optim.Rule: ...

    @property
    def specs(self) -> State:
        """Which parts of a state are divided among the chips."""

    def trees(self, state: State) -> tuple[Any, Any]:
        """Weights and statistics as the network takes them."""

    def stats_of(self, stats: Any) -> Any:
        """Statistics from the network, in the form in which a state has them."""

    def __call__(self, state: State, gradients: Any, rate: jax.Array, *, others: Any) -> Updated:
        """New weights and slots, and the sum of the small tree `others`, from one chip's gradients."""

    def portable(self, state: State) -> State:
        """The state as checkpoints have it: every slot in the shapes of the weights, the same for any number of
        chips."""

    def resumed(self, portable: State) -> State:
        """What `portable` undoes. Takes new norms of the weights where the portable state has none."""


def build_update(
    recipe: Recipe,
    mesh: Mesh,
    shapes: tuple[Any, Any],
    *,
    own: optim.OwnOptimizer | None = None,
    order: Sequence[int] | None = None,
) -> WeightUpdate:
    """The weight update of a recipe, for weights and statistics of these shapes; `own` replaces its optimizer, and
    `order` is that in which the forward pass uses the weights, if it is not the tree's. `reduce = auto` that was not
    measured means the compiler's own sum."""
    rule = optim.build_rule(recipe.optimizer) if own is None else optim.own_rule(own, optim.build_schedule(recipe))
    wire = _WIRES[recipe.gradient_sum]
    if rule.needs_whole:
        if recipe.weight_update not in ("auto", "replicated"):
            raise UserError(
                f"weight_update={recipe.weight_update!r} cuts or joins tensors, and this optimizer needs them whole; "
                f"use --set weight_update=replicated"
            )
        recipe = replace(recipe, weight_update="replicated")
    factors = partial(rate_factors, recipe)
    make_reduction = REDUCTIONS["xla" if recipe.reduce == "auto" else recipe.reduce]
    if recipe.reduce == "sockets":
        if not is_cpu(mesh):
            raise UserError('reduce = "sockets" sums between the processes of CPUs; use --set reduce=auto')
        links.join(mesh, TORUS_AXES.all)
    sums = Sums(make_reduction(TORUS_AXES, wire=wire), make_reduction(TORUS_AXES), bucket_size_bytes(recipe))
    if is_sharded(recipe, mesh.size, on_cpu=is_cpu(mesh)):
        # Chips with links of their own gain nothing from buckets, each of which is padded to whole rows for all chips.
        sums = sums if is_cpu(mesh) else replace(sums, bucket_bytes=_ONE_BUCKET)
        return Sharded(rule, sums, mesh.size, factors)
    all_fp32 = all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(shapes))  # which what lies in one buffer needs
    if all_fp32 and is_flat(recipe, on_gpu=is_gpu(mesh)):
        return Flat(rule, sums, shapes, factors, order)
    by_compiler = recipe.reduce in ("auto", "xla") or mesh.size == 1
    plain = Replicated(rule, partial(_sum_by_compiler, wire=wire) if by_compiler else sums.all, factors)
    return Joined(plain, shapes) if all_fp32 and is_joined(recipe, on_tpu=is_tpu(mesh)) else plain


def is_sharded(recipe: Recipe, chips: int, on_cpu: bool) -> bool:
    """`auto` shards where that was seen to be faster: on 16 chips that a CPU simulates; on 4, runs disagree
    (results/update). On GPUs nobody has measured. On TPUs it replicates, by the planner's price of the sum and LARS's
    update of ResNet-50 (cycles and wires, ms; the wires between the two cores of a chip priced like any other):

                 sharded                     replicated
        v3:4x4   1.35 + 1.48 = 2.83          1.63 + 1.43 = 3.06
        v3:32x32 1.28 + 1.90 = 3.18          1.63 + 0.83 = 2.45

    A sharded update saves cycles everywhere, but goes along one ring of the torus at a time, where the compiler's sum
    of 32x32 uses both. On a small pod the gain is 1 % of a step: ask for it with weight_update = "sharded"."""
    if isinstance(recipe.optimizer, Muon):
        return False
    if recipe.weight_update == "auto":
        return on_cpu and chips >= _SHARDED_FROM_CHIPS
    return chips > 1 and recipe.weight_update == "sharded"


def is_flat(recipe: Recipe, on_gpu: bool) -> bool:
    """On GPUs `auto` updates flat buffers. Their launches cost: for ResNet-50 on 1×8 H100 the compiled step has
    731 kernels after its last convolution tensor by tensor, and 47 flat. Sharded it has some 130, and the gather of new
    weights lies under nothing."""
    return recipe.weight_update == "flat" or (recipe.weight_update == "auto" and on_gpu)


def is_joined(recipe: Recipe, on_tpu: bool) -> bool:
    """On TPUs `auto` joins vectors: on v5p every operation costs 2,130 cycles or more, on v3 260 (docs/pods.md)."""
    return recipe.weight_update == "joined" or (recipe.weight_update == "auto" and on_tpu)


def bucket_size_bytes(recipe: Recipe) -> int:
    return int(recipe.bucket_mb * 1e6)


def _sum_by_compiler(gradients: Any, others: Any, wire: Any) -> tuple[Any, Any]:
    """Whole trees, which XLA combines as the platform likes."""
    sent = jax.tree.map(lambda gradient: gradient.astype(wire), gradients)
    gradients, others = lax.psum((sent, others), AXES)
    return jax.tree.map(lambda gradient: gradient.astype(jnp.float32), gradients), others


class _Ready(NamedTuple):
    """A chip's own gradients as the rule takes them, and what is known of norms by then."""

    gradients: jax.Array
    slots: optim.Slots
    own_squares: jax.Array
    """This chip's share of the squares of the gradients as they came."""
    raw_norms: jax.Array | None
    norms: jax.Array | None
    """Those of `gradients`."""


@dataclass(frozen=True)
class Sharded(Trees):
    """Every chip sums and updates its rows of all weights (`reduce.rows`), and keeps them: `state.own_weights` and each
    slot are float32 [rows of all chips, 8, 128], divided by rows."""

    rule: optim.Rule
    sums: Sums
    chips: int
    factors: Callable[[Any], Factors] = lambda _: None

    @property
    def specs(self) -> State:
        by_rows = P(TORUS_AXES.all)
        return State(P(), P(), P(), slots=by_rows, weight_norms=P(), own_weights=by_rows, averaged=P())

    def __call__(self, state: State, gradients: Any, rate: jax.Array, *, others: Any) -> Updated:
        rows = self._rows(state.params)
        own_gradients = jnp.concatenate(self.sums.scattered(rows.pack(gradients)))
        leaves = OwnLeaves(rows, own_number(TORUS_AXES))
        ready = self._ready(state, own_gradients, leaves)
        if factors := self.factors(state.params):
            rate = rate * leaves.of_rows(jnp.array(factors))
        own_weights, slots = self.rule(
            state.own_weights, ready.gradients, ready.slots, rate=rate, adapted=leaves.of_rows(leaves.adapted),
            weight_norm=leaves.of_rows(state.weight_norms), gradient_norm=leaves.of_rows(ready.norms),
        )  # fmt: skip
        small = {"others": others, "weights": leaves.squares(own_weights)}
        if ready.raw_norms is None:
            small["gradients"] = ready.own_squares
        small = self.sums.small(small)
        norms = jnp.sqrt(small["weights"])
        raw_norms = jnp.sqrt(small["gradients"]) if ready.raw_norms is None else ready.raw_norms
        new = replace(
            state, params=self._gathered(own_weights, rows), slots=slots, own_weights=own_weights,
            weight_norms=norms if self.rule.needs_norms else None,
        )  # fmt: skip
        metrics = optim.norm_metrics(raw_norms, norms)
        of_rule = raw_norms if ready.norms is None else ready.norms
        metrics |= self.rule.metrics(state.weight_norms, of_rule, leaves.adapted)
        return Updated(new, small["others"], metrics)

    def _ready(self, state: State, gradients: jax.Array, leaves: OwnLeaves) -> "_Ready":
        """Clipped and prepared. A rule that needs no norms may learn of them later, along with everything else."""
        rule, slots = self.rule, state.slots
        own_squares, raw_norms, norms = leaves.squares(gradients), None, None
        if rule.clip_norm or (rule.needs_norms and not rule.prepares):
            norms = raw_norms = jnp.sqrt(self.sums.small(own_squares))
            if (factor := optim.clip_factor(raw_norms, rule.clip_norm)) is not None:
                gradients, norms = factor * gradients, factor * raw_norms
        if rule.prepares:
            adapted = leaves.of_rows(leaves.adapted)
            gradients, slots = rule.prepared(state.own_weights, gradients, slots, step=state.step, adapted=adapted)
            norms = jnp.sqrt(self.sums.small(leaves.squares(gradients))) if rule.needs_norms else None
        return _Ready(gradients, slots, own_squares, raw_norms, norms)

    def portable(self, state: State) -> State:
        rows = self._rows(state.params)
        slots = {name: self._gathered(own, rows) for name, own in state.slots.items()}
        return replace(state, slots=slots, own_weights=None)

    def resumed(self, portable: State) -> State:
        rows = self._rows(portable.params)
        slots = {name: self._own(whole, rows) for name, whole in portable.slots.items()}
        own_weights = self._own(portable.params, rows)
        return replace(with_norms(portable, self.rule), slots=slots, own_weights=own_weights)

    def _rows(self, params: Any) -> Rows:
        return Rows(plan_buckets(params, self.sums.bucket_bytes), self.chips)

    def _own(self, whole: Any, rows: Rows) -> jax.Array:
        return jnp.concatenate([own_shard(buffer, TORUS_AXES) for buffer in rows.pack(whole)])

    def _gathered(self, own: jax.Array, rows: Rows) -> Any:
        parts = rows.split(own)
        return rows.unpack([self.sums.of_others.all_gather(part, self.chips * part.shape[0]) for part in parts])
