"""The stored images that one host will ever read, as ranges. A host's places in a batch need not stand side by side:
on a torus they follow its chips, a tile here and a tile there, and a span from the first to the last would hold many
images of other hosts. What fits into a cache is decided by the share alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Share:
    ranges: np.ndarray
    """int64 [k, 2]: [first, last) of stored images, ascending and apart from each other."""

    def __len__(self) -> int:
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())

    def __iter__(self) -> Iterator[slice]:
        return (slice(first, last) for first, last in self.ranges.tolist())

    def numbers(self) -> Iterator[np.ndarray]:
        """The images of each range."""
        return (np.arange(first, last) for first, last in self.ranges.tolist())

    def __contains__(self, image: int) -> bool:
        return bool(((self.ranges[:, 0] <= image) & (image < self.ranges[:, 1])).any())


def join(first: np.ndarray, last: np.ndarray) -> Share:
    """The union of the ranges [first, last), whose beginnings and ends ascend; ranges that meet become one."""
    filled = first < last
    first, last = first[filled], last[filled]
    apart = first[1:] > last[:-1]
    begins, ends = np.concatenate([[True], apart]), np.concatenate([apart, [True]])
    return Share(np.stack([first[begins[: len(first)]], last[ends[: len(last)]]], axis=1).astype(np.int64))


def runs(places: np.ndarray) -> Share:
    """Ascending numbers as ranges."""
    return join(places, places + 1)
