"""One column of byte strings, over the record batches of all shards: where each string lies in the mapped files. The
addresses of a batch of images come from two array look-ups, with no object per image.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from podium.data.decode import Buffers


class ByteColumn:
    def __init__(self, arrays: Sequence[pa.Array]) -> None:
        """Raises ValueError for offsets that lead out of their data: the addresses go to native code unchecked."""
        self._first = np.cumsum([0, *map(len, arrays)])
        self._data = [_data(array) for array in arrays]
        self._bases = np.array([data.__array_interface__["data"][0] for data in self._data], np.uint64)
        # A record batch has 32 MiB of images, or one large one: 32 bits are enough within it.
        self._starts, self._sizes = np.empty((2, len(self)), np.uint32)
        for array, data, first in zip(arrays, self._data, self._first, strict=False):
            offsets, rows = _offsets(array, data.size), slice(first, first + len(array))
            self._starts[rows] = offsets[:-1]
            np.subtract(offsets[1:], offsets[:-1], out=self._sizes[rows], casting="unsafe")

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, row: int) -> np.ndarray:
        """uint8 [bytes], read-only, no copy; empty for a null."""
        if not 0 <= row < len(self):
            raise IndexError(f"image {row} of {len(self)}")
        batch = int(np.searchsorted(self._first, row, side="right")) - 1
        start = int(self._starts[row])
        return self._data[batch][start : start + int(self._sizes[row])]

    def buffers(self, rows: np.ndarray) -> Buffers:
        """Where the strings of many rows lie. The column has to outlive it."""
        batches = np.searchsorted(self._first, rows, side="right") - 1
        addresses = self._bases[batches] + self._starts[rows]
        return Buffers(addresses.astype(np.uintp, copy=False), self._sizes[rows].astype(np.uintp))


def _data(array: pa.Array) -> np.ndarray:
    data = array.buffers()[2]
    return np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _offsets(array: pa.Array, data_bytes: int) -> np.ndarray:
    if not len(array):
        return np.zeros(1, np.int64)
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    offsets: NDArray[Any] = np.frombuffer(array.buffers()[1], width)[array.offset : array.offset + len(array) + 1]
    if offsets[0] < 0 or offsets[-1] > min(data_bytes, 2**32 - 1) or (offsets[1:] < offsets[:-1]).any():
        raise ValueError("byte strings that lie outside their data")
    return offsets
