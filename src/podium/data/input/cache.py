"""What a host keeps of its share of the images in memory: decoded pixels where they fit, else the JPEG bytes, else
nothing but the memory-mapped file. The level changes speed alone; the decoder gives the same bits from each. An
image is taken into the cache when it is first asked for, or by `read_ahead`.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from podium.data import decode
from podium.data.dataset.shards import ImageSet
from podium.data.input.share import Share
from podium.host.memory import free_memory_bytes

_BLACK = np.zeros((1, 1, 3), np.uint8)
Level = Literal["pixels", "bytes", "none"]


def choose_level(images: ImageSet, share: Share, wanted: str, budget_bytes: int) -> Level:
    """The recipe's level, or for `auto` the fastest one that fits into the budget."""
    if wanted != "auto":
        return wanted  # type: ignore[return-value]
    levels: tuple[Level, ...] = ("pixels", "bytes", "none")
    return next(level for level in levels if cached_bytes(images, share, level) <= budget_bytes)


def cached_bytes(images: ImageSet, share: Share, level: Level) -> int:
    """What the whole share takes in memory at a level."""
    if level == "pixels":
        return sum(int(images.sizes[part].astype(np.int64).prod(axis=1).sum()) * 3 for part in share)
    if level == "bytes":
        return sum(shard.bytes for shard in images.shards) * len(share) // max(1, len(images))
    return 0


def budget_bytes(cache_gb: float) -> int:
    """As given, or half of the memory that is free now."""
    return int(cache_gb * 1e9) or free_memory_bytes() // 2


@dataclass(frozen=True)
class CacheBudgets:
    """What one process may keep of the images to train on, and of those to evaluate on."""

    train_bytes: int
    validation_bytes: int


def divide_budget(cache_gb: float, processes_here: int) -> CacheBudgets:
    """One process's part of the host's budget: three quarters of it for training."""
    mine = budget_bytes(cache_gb) // processes_here
    return CacheBudgets(mine * 3 // 4, mine // 4)


class Cache:
    """The images of one split at one level. One thread decodes batches, another may read ahead; should both take the
    same image, one of the equal copies stays. Decoding inside runs on `threads`."""

    def __init__(self, images: ImageSet, level: Level, threads: int) -> None:
        self.images = images
        self.level = level
        self.threads = threads
        self._kept: dict[int, np.ndarray] = {}
        decode.backend()  # chosen now: a mistake in the choice is told to the caller, not by a thread that reads ahead
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="podium-cache")

    def decode(self, samples: np.ndarray, boxes: np.ndarray, flips: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Fills `out` [n, size, size, 3] and gives a status per image."""
        self.read_ahead(samples)
        if self.level != "pixels":
            return decode.decode_batch([self._bytes(s) for s in samples], boxes, flips, out, self.threads)
        kept = [self._kept.get(int(s), _BLACK) for s in samples]
        statuses = decode.resize_batch(kept, boxes, flips, out, self.threads)
        for row in (i for i, pixels in enumerate(kept) if pixels is _BLACK):  # broken: the decoder says how
            one, sample = slice(row, row + 1), int(samples[row])
            statuses[one] = decode.decode_batch([self._bytes(sample)], boxes[one], flips[one], out[one], threads=1)
        return statuses

    def read_ahead(self, samples: Sequence[int] | np.ndarray) -> None:
        """Takes what is missing of `samples` into the cache. Broken images are left to `decode`, which names them."""
        if self.level == "none":
            return
        missing = [int(s) for s in samples if int(s) not in self._kept]
        keep = self._decoded if self.level == "pixels" else self._copied
        for sample, kept in zip(missing, self._pool.map(keep, missing), strict=True):
            if kept is not None:
                self._kept[sample] = kept

    def close(self) -> None:
        self._pool.shutdown()

    def _bytes(self, sample: int) -> np.ndarray:
        kept = self._kept.get(int(sample)) if self.level == "bytes" else None
        return self.images.image(int(sample)) if kept is None else kept

    def _copied(self, sample: int) -> np.ndarray:
        return self.images.image(sample).copy()

    def _decoded(self, sample: int) -> np.ndarray | None:
        try:
            return decode.decode_pixels(self.images.image(sample))
        except decode.DecodeError:
            return None
