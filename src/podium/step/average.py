"""The moving average of a network's weights and statistics, with which a run that has `average_decay` answers. It is
part of the state, in the form in which the weight update keeps the weights themselves.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from podium.recipe.schema import Recipe
from podium.step.carried import is_mean
from podium.step.state import State


def with_average(recipe: Recipe, portable: State) -> State:
    """With an average where the recipe asks for one: the one that is there, or one that begins at the weights."""
    if not recipe.average_decay:
        return replace(portable, averaged=None)
    begun = {"params": portable.params, "stats": portable.stats}
    return replace(portable, averaged=begun if portable.averaged is None else portable.averaged)


def averaged(recipe: Recipe, state: State) -> State:
    """The state with its weights taken into the average. The decay rises from 2/11 to the recipe's, as TensorFlow has
    it, so that the random weights of the start are soon forgotten."""
    if state.averaged is None:
        return state
    steps = state.step.astype(jnp.float32)
    new_share = 1 - jnp.minimum(recipe.average_decay, (1 + steps) / (10 + steps))
    now = {"params": state.params, "stats": state.stats}

    def moved(average: jax.Array, value: jax.Array) -> jax.Array:
        return average + new_share * (value - average) if is_mean(value) else value

    return replace(state, averaged=jax.tree.map(moved, state.averaged, now))


def answering(state: State) -> State:
    """The state whose weights and statistics make the answers: the average if there is one."""
    average: dict[str, Any] = state.averaged or {}
    return replace(state, **average)
