"""The weight update in which every chip sums all gradients and updates all weights, tensor by tensor."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.sharding import PartitionSpec as P

from podium import optim
from podium.step.layer_rates import Factors
from podium.step.leaves import with_norms
from podium.step.state import State, Updated


class Trees:
    """The state has the network's trees as they are."""

    def trees(self, state: State) -> tuple[Any, Any]:
        return state.params, state.stats

    def stats_of(self, stats: Any) -> Any:
        return stats


@dataclass(frozen=True)
class Replicated(Trees):
    """Every chip sums all gradients and updates all weights."""

    rule: optim.Rule
    total: Callable[[Any, Any], tuple[Any, Any]]
    factors: Callable[[Any], Factors] = lambda _: None
    specs = State(P(), P(), P(), P(), P(), averaged=P())

    def __call__(self, state: State, gradients: Any, rate: jax.Array, *, others: Any) -> Updated:
        gradients, others = self.total(gradients, others)
        factors = self.factors(state.params)
        rates = rate if factors is None else [factor * rate for factor in factors]
        new = optim.update(
            self.rule, state.params, gradients, slots=state.slots, rate=rates, step=state.step,
            weight_norms=state.weight_norms,
        )  # fmt: skip
        state = replace(state, params=new.weights, slots=new.slots, weight_norms=new.weight_norms)
        return Updated(state, others, new.metrics)

    def portable(self, state: State) -> State:
        return state

    def resumed(self, portable: State) -> State:
        return with_norms(portable, self.rule)
