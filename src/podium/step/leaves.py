"""Norms and values by tensor, for updates whose buffers hold the rows of many (`reduce.rows`). Nothing here
communicates.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from podium import optim
from podium.reduce import Rows
from podium.step.state import State


class OwnLeaves:
    """Which leaf each of a chip's rows belongs to, as a table of zeros and ones: sums by leaf and values by row are
    then products with it, which TPUs do at once, and no scatter or gather."""

    def __init__(self, rows: Rows, chip: jax.Array | int) -> None:
        leaf_of_row = jnp.asarray(rows.leaf_of_row())[chip]
        self._is_of = leaf_of_row[:, None] == jnp.arange(len(rows.buckets.leaves))
        self.adapted = jnp.array([optim.is_adapted(leaf) for leaf in rows.buckets.leaves])

    def squares(self, *own: jax.Array) -> jax.Array:
        """This chip's share of the sum of squares of every leaf, from all its rows one after the other."""
        of_rows = jnp.concatenate([jnp.square(part).sum((1, 2)) for part in own])
        return jnp.where(self._is_of, of_rows[:, None], 0.0).sum(0)

    def of_rows(self, of_leaves: jax.Array | None) -> Any:
        """[rows, 1, 1]: the value of each row's leaf; 0 for rows that belong to none."""
        if of_leaves is None:
            return 0.0
        of_rows = jnp.where(self._is_of, of_leaves, jnp.zeros((), of_leaves.dtype))
        return (of_rows.any(1) if of_leaves.dtype == bool else of_rows.sum(1))[:, None, None]


def with_norms(state: State, rule: optim.Rule) -> State:
    """With norms for a rule that asks for them, and without for one that does not."""
    if not rule.needs_norms:
        return replace(state, weight_norms=None)
    return state if state.weight_norms is not None else replace(state, weight_norms=optim.norms(state.params))
