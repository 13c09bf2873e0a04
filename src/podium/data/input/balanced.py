"""An order in which every class is drawn equally often (`data.balance = "sampling"`), a pure function of (seed, step)
like `order`. Each run of as many places as there are classes holds every class once, in an order of its own; the images
of a class follow each other in a shuffle, and when all have been seen in the next one.

Unlike in `order`, a host may meet any image: what makes up for small classes reaches over the whole data set.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from podium.data.input import counter_rng
from podium.data.input.share import Share

_OF_CLASSES, _OF_IMAGES = 2, 3  # among the keys of one seed


class _Classes(NamedTuple):
    """The classes that have images."""

    counts: np.ndarray
    """How many images each has."""
    first: np.ndarray
    """Where each begins among `images`."""
    images: np.ndarray
    """All images, class by class."""


@dataclass(frozen=True, eq=False)
class BalancedOrder:
    labels: np.ndarray
    """The class of every stored image."""
    batch_global: int
    seed: int

    def batch(self, step: int | np.ndarray, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(sample, epoch) of the places `rows` (all, if None) of global batch `step`, or of a step for each place;
        int64 arrays. An image's epoch counts how often it was seen before."""
        rows = np.arange(self.batch_global) if rows is None else np.asarray(rows)
        counts, first, images = self._classes
        turn, place = np.divmod(np.asarray(step) * self.batch_global + rows, len(counts))
        of_all = np.full_like(place, len(counts))
        chosen = counter_rng.permute(place, of_all, counter_rng.key(self.seed, turn, _OF_CLASSES))
        epoch, index = np.divmod(turn, counts[chosen])
        keys = counter_rng.key(self.seed, chosen, epoch, _OF_IMAGES)
        return images[first[chosen] + counter_rng.permute(index, counts[chosen], keys)], epoch

    def share(self, rows: np.ndarray) -> Share:
        """The stored images that the places `rows` may ever draw: all of them."""
        return Share(np.array([[0, len(self.labels)]], np.int64))

    @cached_property
    def _classes(self) -> _Classes:
        _, counts = np.unique(self.labels, return_counts=True)
        return _Classes(counts, np.cumsum(counts) - counts, np.argsort(self.labels, kind="stable"))
