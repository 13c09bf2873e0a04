"""What a host keeps of its share of the images in memory: decoded pixels where they fit, else the JPEG bytes, else
nothing but the memory-mapped file. The level changes speed alone; the decoder gives the same bits from each. An
image is taken into the cache when it is first asked for, or by `read_ahead`.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from podium.data import decode
from podium.data.dataset.seek import build_index
from podium.data.dataset.shards import ImageSet
from podium.data.input.byte_store import ByteStore
from podium.data.input.share import Share
from podium.host.memory import free_memory_bytes

Level = Literal["pixels", "bytes", "none"]


def choose_level(images: ImageSet, share: Share, wanted: str, *, budget_bytes: int) -> Level:
    """The recipe's level, or for `auto` the fastest one that fits into the budget."""
    if wanted != "auto":
        return wanted  # type: ignore[return-value]
    levels: tuple[Level, ...] = ("pixels", "bytes", "none")
    return next(level for level in levels if cached_bytes(images, share, level) <= budget_bytes)


def cached_bytes(images: ImageSet, share: Share, level: Level) -> int:
    """What the whole share takes in memory at a level."""
    if level == "pixels":
        return sum(int(images.sizes_of(part).astype(np.int64).prod(axis=1).sum()) * 3 for part in share.numbers())
    if level == "bytes":
        return sum(shard.bytes for shard in images.shards) * len(share) // max(1, len(images))
    return 0


def budget_bytes(cache_gb: float) -> int:
    """The budget that was given, or half of the memory that is free now."""
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

    def __init__(self, images: ImageSet, level: Level, threads: int, *, seek: bool = True) -> None:
        """Without `seek`, no seek index is used: the same bits, more slowly."""
        self.images = images
        self.level = level
        self.threads = threads
        self._seek = seek
        self._pixels, self._files, self._indexes = (ByteStore(len(images)) for _ in range(3))
        decode.backend()  # chosen now, so that a mistake is raised here and not in a thread that reads ahead
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="podium-cache")

    def decode(self, samples: np.ndarray, boxes: np.ndarray, flips: np.ndarray, *, out: np.ndarray) -> np.ndarray:
        """Fills `out` [n, size, size, 3] and gives a status per image."""
        self.read_ahead(samples)
        if self.level != "pixels":
            return self._from_files(samples, boxes, flips, out=out)
        kept = self._pixels.buffers(samples, None)
        broken = kept.sizes == 0
        sizes = np.where(broken[:, None], 0, self.images.sizes_of(samples))
        statuses = decode.resize_batch(kept, boxes, flips, out=out, threads=self.threads, sizes=sizes)
        for row in np.flatnonzero(broken):  # the decoder says how
            one = slice(row, row + 1)
            statuses[one] = self._from_files(samples[one], boxes[one], flips[one], out=out[one])
        return statuses

    def read_ahead(self, samples: np.ndarray) -> None:
        """Takes what is missing of `samples` into the cache. Broken images are left to `decode`, which names them."""
        if self.level == "none":
            return
        files = self.level == "bytes"
        store, keep = (self._files, self._keep_file) if files else (self._pixels, self._keep_pixels)
        missing = samples[~store.has(samples)].tolist()
        if missing:
            list(self._pool.map(keep, missing))

    def kept(self) -> set[int]:
        """The images that are in memory."""
        return self._files.keys() | self._pixels.keys()

    def close(self) -> None:
        self._pool.shutdown()

    def _from_files(self, samples: np.ndarray, boxes: np.ndarray, flips: np.ndarray, *, out: np.ndarray) -> np.ndarray:
        """As `decode`; an image that has changed on the disk is reported, whether or not it decodes."""
        self.images.need(samples)
        list(self._pool.map(self.images.damaged, self.images.unchecked(samples).tolist()))
        statuses = self._decoded(samples, boxes, flips, out=out)
        statuses[self.images.known_damaged(samples)] = decode.Status.CHANGED
        return statuses

    def _decoded(self, samples: np.ndarray, boxes: np.ndarray, flips: np.ndarray, *, out: np.ndarray) -> np.ndarray:
        files = self._files.buffers(samples, self.images.images)
        if not self._seek:
            return decode.decode_batch(files, boxes, flips, out=out, threads=self.threads)
        indexes, stale = self._indexes.buffers(samples, self.images.indexes), np.zeros(len(samples), np.bool_)
        statuses = decode.decode_batch(files, boxes, flips, out=out, threads=self.threads, indexes=indexes, stale=stale)
        for sample in samples[stale].tolist():  # the index of another file, or damaged
            self._keep_index(sample, self.images.image(sample))
        return statuses

    def _keep_file(self, sample: int) -> None:
        if self.images.damaged(sample):
            return
        image = self.images.image(sample)
        stored = self.images.indexes[sample]
        if stored.size:
            self._indexes.put(sample, stored)
        elif self._seek:
            self._keep_index(sample, image)
        self._files.put(sample, image)  # last: whoever finds the file finds its index

    def _keep_index(self, sample: int, image: np.ndarray) -> None:
        try:
            index = build_index(image, *self.images.sizes_of(np.array(sample)).tolist())
        except decode.DecodeError:
            return
        if index is not None:
            self._indexes.put(sample, np.frombuffer(index, np.uint8))

    def _keep_pixels(self, sample: int) -> None:
        if self.images.damaged(sample):
            return
        with contextlib.suppress(decode.DecodeError):
            pixels = decode.decode_pixels(self.images.image(sample))
            if pixels.shape[1::-1] == tuple(self.images.sizes_of(np.array(sample))):
                self._pixels.put(sample, pixels.reshape(-1))
