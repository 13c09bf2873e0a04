"""What a trained network says about each image: probabilities batch by batch, with the input ahead and all devices at
work, as in an evaluation. `judge` makes the figures of a whole set of them.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import jax
import numpy as np

from podium.data.input.ahead import Fills
from podium.data.input.prefetch import Feed
from podium.step.programs import Step
from podium.step.state import State


class Answers(NamedTuple):
    label: np.ndarray
    """int32 [batch]: as the loader has it, −1 for padding."""
    probabilities: np.ndarray
    """float32 [batch, classes]"""


class Batches(Fills, Protocol):
    batches: int
    batch_global: int


def answers(step: Step, state: State, loader: Batches) -> Iterator[Answers]:
    """Yields the answers of every batch, in order. One batch is computed while the one before is looked at."""
    before: tuple[jax.Array, jax.Array] | None = None
    with Feed(loader, range(loader.batches), step.eval_batches, batch_global=loader.batch_global) as feed:
        for batch in feed:
            now = batch["label"], step.answer(state, batch["image"])
            if before is not None:
                yield Answers(*map(np.asarray, before))
            before = now
    if before is not None:
        yield Answers(*map(np.asarray, before))
