"""The weight update for GPUs, where every operation is a kernel of its own and a launch may cost more than a small one
computes: every chip sums all gradients and updates all weights, as in `update.Replicated`, but in a few flat buffers
instead of tensor by tensor. The network takes its tensors as slices of them, which cost no kernel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from podium import optim
from podium.mesh import AXES
from podium.reduce import Buckets, Rows, plan_buckets
from podium.reduce.declare_replicated import declare_replicated
from podium.step.layer_rates import Factors
from podium.step.leaves import OwnLeaves, with_norms
from podium.step.state import State, Updated
from podium.step.sums import Sums

_ONE_BUCKET = 2**62


@dataclass(frozen=True)
class Flat:
    """The buffers are `state.params` and every slot: lists of float32 [rows, 8, 128], one for each bucket of gradients
    (`reduce.rows`), the same on every chip; `state.stats` is one flat vector."""

    rule: optim.Rule
    sums: Sums
    shapes: tuple[Any, Any]
    """Shapes of the network's weights and of its statistics."""
    factors: Callable[[Any], Factors] = lambda _: None
    order: Sequence[int] | None = None
    """In which the forward pass uses the weights: the backward pass finishes the first buffer first, so that its sum
    lies under the rest."""
    specs = State(P(), P(), P(), P(), P(), averaged=P())

    def trees(self, state: State) -> tuple[Any, Any]:
        return self._rows.unpack(state.params), self._statistics.unpack([state.stats])

    def stats_of(self, stats: Any) -> jax.Array:
        return self._statistics.pack(stats)[0]

    def __call__(self, state: State, gradients: Any, rate: jax.Array, *, others: Any) -> Updated:
        leaves = OwnLeaves(self._rows, 0)
        summed = self._summed(self._rows.pack(gradients))
        raw_norms = gradient_norms = jnp.sqrt(leaves.squares(*summed))
        if (factor := optim.clip_factor(raw_norms, self.rule.clip_norm)) is not None:
            summed, gradient_norms = [factor * buffer for buffer in summed], factor * raw_norms
        slots = state.slots
        if self.rule.prepares:
            summed, slots = self._prepared(state, summed, leaves)
            gradient_norms = jnp.sqrt(leaves.squares(*summed))
        weights, slots = self._updated(replace(state, slots=slots), summed, gradient_norms, rate=rate, leaves=leaves)
        norms = jnp.sqrt(leaves.squares(*weights))
        new = replace(state, params=weights, slots=slots, weight_norms=norms if self.rule.needs_norms else None)
        metrics = optim.norm_metrics(raw_norms, norms)
        metrics |= self.rule.metrics(state.weight_norms, gradient_norms, leaves.adapted)
        return Updated(new, self.sums.small(others), metrics)

    def _summed(self, buffers: list[jax.Array]) -> list[jax.Array]:
        """One after the other: XLA would leave to the end whichever buffer it likes, and nothing lies under the last.
        So the last is the one that is last to be ready, and small."""
        summed: list[jax.Array] = []
        for buffer in buffers:
            if summed:
                buffer, before = lax.optimization_barrier((buffer, summed[-1]))
                summed[-1] = declare_replicated(before, AXES)  # a barrier gives all that it holds one type
            summed.append(self.sums.of_gradients.all_reduce(buffer.reshape(-1)).reshape(buffer.shape))
        return summed

    def _prepared(
        self, state: State, gradients: list[jax.Array], leaves: OwnLeaves
    ) -> tuple[list[jax.Array], optim.Slots]:
        adapted = self._rows.split(leaves.of_rows(leaves.adapted))
        ready = [
            self.rule.prepared(
                state.params[k], gradient, {name: buffers[k] for name, buffers in state.slots.items()},
                step=state.step, adapted=adapted[k],
            )
            for k, gradient in enumerate(gradients)
        ]  # fmt: skip
        slots = {name: [new[name] for _, new in ready] for name in state.slots}
        return [gradient for gradient, _ in ready], slots

    def _updated(
        self, state: State, gradients: list[jax.Array], norms: jax.Array, *, rate: jax.Array, leaves: OwnLeaves
    ) -> tuple[list[jax.Array], optim.Slots]:
        """New weights and slots, buffer by buffer; `norms` are the gradients'."""
        of_leaves = {
            "adapted": leaves.adapted,
            "weight_norm": jnp.zeros_like(norms) if state.weight_norms is None else state.weight_norms,
            "gradient_norm": norms,
        }
        if factors := self.factors(self.shapes[0]):
            of_leaves["rate"] = rate * jnp.array(factors)
        of_rows = {name: self._rows.split(leaves.of_rows(values)) for name, values in of_leaves.items()}
        weights, slots = [], []
        for k, gradient in enumerate(gradients):
            own = {name: buffers[k] for name, buffers in state.slots.items()}
            of_buffer = {"rate": rate} | {name: parts[k] for name, parts in of_rows.items()}
            weight, new = self.rule(state.params[k], gradient, own, **of_buffer)
            weights.append(weight)
            slots.append(new)
        return weights, {name: [new[name] for new in slots] for name in state.slots}

    def portable(self, state: State) -> State:
        params, stats = self.trees(state)
        slots = {name: self._rows.unpack(buffers) for name, buffers in state.slots.items()}
        averaged = state.averaged
        if averaged is not None:
            averaged = dict(zip(averaged, self.trees(replace(state, **averaged)), strict=True))
        return replace(state, params=params, stats=stats, slots=slots, averaged=averaged)

    def resumed(self, portable: State) -> State:
        state = replace(with_norms(portable, self.rule), stats=self.stats_of(portable.stats))
        slots = {name: self._rows.pack(whole) for name, whole in portable.slots.items()}
        averaged = portable.averaged
        if averaged is not None:
            averaged = {"params": self._rows.pack(averaged["params"]), "stats": self.stats_of(averaged["stats"])}
        return replace(state, params=self._rows.pack(portable.params), slots=slots, averaged=averaged)

    @property
    def _rows(self) -> Rows:
        return Rows(plan_buckets(self.shapes[0], self.sums.bucket_bytes, self.order), shards=1, tiled=False)

    @property
    def _statistics(self) -> Buckets:
        return plan_buckets(self.shapes[1], _ONE_BUCKET)
