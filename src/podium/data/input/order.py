"""Which image stands at which place of which batch: a pure function of (seed, step, batch size), never of the number
of hosts. Resume is one integer, and a run that moves from 4 hosts to 16 sees the very same batches.

The places of a batch are split into V runs of equal length, the virtual shards, and so are the stored images; run v
always draws from share v, each epoch in an order of its own. A host that fills some places of every batch therefore
reads only the shares behind those places, which stay in its memory, as in the paper.

The number of images N need not divide by V or by the batch. In e epochs share v has given floor((v+1)·e·N/V) −
floor(v·e·N/V) images, and the borders between shares move by at most one image from epoch to epoch accordingly: every
epoch visits every image exactly once, every batch is full, and a batch may hold the end of one epoch and the start of
the next.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from podium.data.input import counter_rng
from podium.data.input.share import Share, join, runs

MAX_VIRTUAL_SHARDS = 1024  # more hosts than this would share a share
_SHUFFLE = 1  # among the keys of one seed


@dataclass(frozen=True)
class Order:
    images: int
    batch_global: int
    seed: int
    version: str = "v2"
    """`order` of a recipe."""

    @cached_property
    def virtual_shards(self) -> int:
        """The most shares that divide the batch evenly, but no more than images. Chips divide the batch too, so there
        are as many shares as chips at least, and a chip's places reach into few of them. (v1 took powers of two
        alone, so that a host read nearly everything where the batch was odd.)"""
        if self.version == "v1":
            shards = math.gcd(self.batch_global, MAX_VIRTUAL_SHARDS)
            return min(shards, 1 << (self.images.bit_length() - 1))
        most = min(self.batch_global, MAX_VIRTUAL_SHARDS, self.images)
        return next(shards for shards in range(most, 0, -1) if self.batch_global % shards == 0)

    def batch(self, step: int | np.ndarray, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(sample, epoch) of the places `rows` (all, if None) of global batch `step`, or of a step for each place;
        int64 arrays."""
        rows = np.arange(self.batch_global) if rows is None else np.asarray(rows)
        v, n = self.virtual_shards, self.images
        places = self.batch_global // v
        shard, place = rows // places, rows % places
        draw = step * places + place  # how many images the share has given before
        epoch = draw * v // n
        # The share's epoch ends within one image of the average share's.
        epoch -= draw < self._given(shard, epoch)
        epoch += draw >= self._given(shard, epoch + 1)
        first = self._border(shard, epoch)
        size = self._border(shard + 1, epoch) - first
        index = draw - self._given(shard, epoch)
        # Of v1, the shuffle of share i had the very key of the crop of image i.
        tag = () if self.version == "v1" else (_SHUFFLE,)
        keys = counter_rng.key(self.seed, epoch, shard, *tag)
        return first + counter_rng.permute(index, size, keys, version=self.version), epoch

    def share(self, rows: np.ndarray) -> Share:
        """The stored images that the places `rows` may ever draw, borders' movement included."""
        v, n = self.virtual_shards, self.images
        shard = np.unique(rows // (self.batch_global // v))
        return join(np.maximum(0, shard * n // v - 1), np.minimum(n, -(-(shard + 1) * n // v) + 1))

    def _given(self, shard: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """Images that the share has given in its first `epochs` epochs."""
        total = epochs * self.images
        return (shard + 1) * total // self.virtual_shards - shard * total // self.virtual_shards

    def _border(self, shard: np.ndarray, epoch: np.ndarray) -> np.ndarray:
        """The first stored image of the share in this epoch: the sizes of the shares before it, summed."""
        v, n = self.virtual_shards, self.images
        return shard * (epoch + 1) * n // v - shard * epoch * n // v


def evaluation_batches(images: int, batch_global: int) -> int:
    return -(-images // batch_global)


def evaluation_batch(images: int, batch_global: int, index: int, *, rows: np.ndarray) -> np.ndarray:
    """The samples at the places `rows` of evaluation batch `index`, in stored order; −1 pads behind the last."""
    sample = index * batch_global + rows
    return np.where(sample < images, sample, -1)


def evaluation_share(images: int, batch_global: int, rows: np.ndarray) -> Share:
    """The stored images at the places `rows` (ascending) of all evaluation batches."""
    begins = batch_global * np.arange(evaluation_batches(images, batch_global))[:, None]
    first, last = (np.minimum(images, begins + end).ravel() for end in runs(rows).ranges.T)
    return join(first, last)
