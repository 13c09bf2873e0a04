"""Byte strings that stay in memory until the end of a run, one after the other in large blocks: nothing is wasted
between them, the kernel gives large pages where it can, and the addresses of a batch of them are one array look-up.
"""

import mmap
import threading

import numpy as np

from podium.data.dataset.column import ByteColumn
from podium.data.decode import Buffers

_BLOCK_BYTES = 64 * 2**20  # of addresses; memory is taken as it is first written to


class ByteStore:
    """Up to `count` strings by number. Any thread may put; what was put is never moved or taken out."""

    def __init__(self, count: int) -> None:
        self._addresses, self._sizes = np.zeros(count, np.uint64), np.zeros(count, np.uint32)
        self._blocks: list[np.ndarray] = []
        self._used_bytes = 0
        self._lock = threading.Lock()

    def put(self, number: int, string: np.ndarray) -> None:
        """Copies `string`, uint8 [bytes]; an empty one counts as not there."""
        place = self._take(string.size)
        place[:] = string
        self._addresses[number] = place.__array_interface__["data"][0]
        self._sizes[number] = string.size  # last: `has` asks for it

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """bool [n]."""
        return self._sizes[numbers] > 0

    def keys(self) -> set[int]:
        return set(np.flatnonzero(self._sizes).tolist())

    def buffers(self, numbers: np.ndarray, others: ByteColumn | None) -> Buffers:
        """Where the strings lie: here, or else in `others`. Both have to outlive it."""
        addresses, sizes = self._addresses[numbers], self._sizes[numbers].astype(np.uintp)
        absent = sizes == 0
        if others is not None and absent.any():
            stored = others.buffers(numbers[absent])
            addresses[absent], sizes[absent] = stored.addresses, stored.sizes
        return Buffers(addresses.astype(np.uintp, copy=False), sizes)

    def _take(self, string_bytes: int) -> np.ndarray:
        """Memory for one string."""
        with self._lock:
            if not self._blocks or self._used_bytes + string_bytes > self._blocks[-1].size:
                self._blocks.append(_block(max(_BLOCK_BYTES, string_bytes)))
                self._used_bytes = 0
            first, self._used_bytes = self._used_bytes, self._used_bytes + string_bytes
            return self._blocks[-1][first : self._used_bytes]


def _block(block_bytes: int) -> np.ndarray:
    memory = mmap.mmap(-1, block_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
