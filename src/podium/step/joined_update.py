"""The weight update for TPUs, where every operation costs up to some 2,000 cycles, however small it is (docs/pods.md).
A ResNet-50 has 107 vectors beside its 54 kernels, and 106 more of statistics. Here all vectors lie one after the other
in one, and so do the statistics; kernels stay as they are. The update itself is that of `replicated_update`, for which
a vector is a vector: weight decay and LARS's scaling, which take tensors one by one, leave all of them out.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from podium import optim
from podium.reduce import Buckets, plan_buckets
from podium.step.layer_rates import Factors
from podium.step.leaves import with_norms
from podium.step.replicated_update import Replicated
from podium.step.state import State, Updated

_ONE_BUCKET = 2**62
Weights = dict[str, list[jax.Array]]
"""The kernels of a network, and its vectors as one (none, if it has none)."""


@dataclass(frozen=True)
class Joined:
    """`state.params` and every slot are `Weights`; `state.stats` is a list of one vector."""

    plain: Replicated
    shapes: tuple[Any, Any]
    """The shapes of the network's weights and statistics."""
    specs = Replicated.specs

    @property
    def rule(self) -> optim.Rule:
        return self.plain.rule

    def trees(self, state: State) -> tuple[Any, Any]:
        return self._apart(state.params), self._statistics.unpack(state.stats)

    def stats_of(self, stats: Any) -> list[jax.Array]:
        return self._statistics.pack(stats)

    def __call__(self, state: State, gradients: Any, rate: jax.Array, *, others: Any) -> Updated:
        plain = replace(self.plain, factors=lambda _: self._factors)
        return plain(state, self._together(gradients), rate, others=others)

    def portable(self, state: State) -> State:
        slots = {name: self._apart(weights) for name, weights in state.slots.items()}
        params, stats = self.trees(state)
        norms, averaged = state.weight_norms, state.averaged
        if norms is not None:
            norms = optim.norms(params).at[self._kernels].set(norms[: len(self._kernels)])
        if averaged is not None:
            averaged = dict(zip(averaged, self.trees(replace(state, **averaged)), strict=True))
        return replace(state, params=params, stats=stats, slots=slots, weight_norms=norms, averaged=averaged)

    def resumed(self, portable: State) -> State:
        norms, averaged = portable.weight_norms, portable.averaged
        if averaged is not None:
            averaged = {"params": self._together(averaged["params"]), "stats": self.stats_of(averaged["stats"])}
        state = replace(
            portable,
            params=self._together(portable.params),
            stats=self.stats_of(portable.stats),
            slots={name: self._together(weights) for name, weights in portable.slots.items()},
            weight_norms=None,
            averaged=averaged,
        )
        state = with_norms(state, self.rule)
        if norms is not None and state.weight_norms is not None:  # to the last bit those that the run had
            carried = state.weight_norms.at[: len(self._kernels)].set(norms[self._kernels])
            state = replace(state, weight_norms=carried)
        return state

    def _together(self, tree: Any) -> Weights:
        leaves = jax.tree.leaves(tree)
        vectors = [leaf for leaf in leaves if not optim.is_adapted(leaf)]
        return {"kernels": [leaves[k] for k in self._kernels], "vectors": self._vectors.pack(vectors)}

    def _apart(self, weights: Weights) -> Any:
        shapes, treedef = jax.tree.flatten(self.shapes[0])
        kernels, vectors = iter(weights["kernels"]), iter(self._vectors.unpack(weights["vectors"]))
        leaves = [next(kernels if optim.is_adapted(shape) else vectors) for shape in shapes]
        return jax.tree.unflatten(treedef, leaves)

    @cached_property
    def _kernels(self) -> np.ndarray:
        """Which leaves are kernels."""
        return np.flatnonzero([optim.is_adapted(leaf) for leaf in jax.tree.leaves(self.shapes[0])])

    @cached_property
    def _vectors(self) -> Buckets:
        leaves = jax.tree.leaves(self.shapes[0])
        return plan_buckets([leaf for leaf in leaves if not optim.is_adapted(leaf)], _ONE_BUCKET)

    @cached_property
    def _statistics(self) -> Buckets:
        return plan_buckets(self.shapes[1], _ONE_BUCKET)

    @property
    def _factors(self) -> Factors:
        """What the rate is multiplied by: one number for each kernel, and one for each number of the vectors."""
        factors = self.plain.factors(self.shapes[0])
        if factors is None:
            return None
        leaves = zip(jax.tree.leaves(self.shapes[0]), factors, strict=True)
        of_vectors = [jnp.full(leaf.shape, factor) for leaf, factor in leaves if not optim.is_adapted(leaf)]
        return (*(factors[k] for k in self._kernels), *self._vectors.pack(of_vectors))
