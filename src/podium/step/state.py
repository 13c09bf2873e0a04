"""What a step is given and gives back: the state that it changes, a batch, and metrics by name."""

from dataclasses import dataclass
from typing import Any

import jax

Batch = dict[str, jax.Array]
"""On the devices; `recipe.batch` says what is in it."""
Metrics = dict[str, jax.Array]
"""Scalars by name. Whatever the training step puts here is reported everywhere: progress events, metrics.jsonl and
TensorBoard."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that a step changes. `update.WeightUpdate` says where each part lies, and in which form."""

    step: Any
    params: Any
    stats: Any
    """Batch norm's moving means and variances."""
    slots: Any
    """What the optimizer remembers of each weight, by name (`optim.Rule.slots`)."""
    weight_norms: Any = None
    """One norm per tensor of `params`, for an optimizer that asks for them: exactly those that the last update took."""
    own_weights: Any = None
    """This chip's rows of `params`, in a sharded update."""
    averaged: Any = None
    """With `average_decay`, the moving averages of `params` and `stats`: a dictionary of the two, in the same form."""


@dataclass(frozen=True)
class Updated:
    """What a weight update gives back."""

    state: State
    others: Any
    """The sum over all chips of the small tree that was given along."""
    metrics: Metrics
