"""One column of byte strings, over all shards: where each string lies in the mapped files. The addresses of a batch of
images come from an array look-up, with no object per image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from podium.data.decode import Buffers


@dataclass(frozen=True)
class Strings:
    """Where the byte strings of some record batches lie."""

    addresses: np.ndarray
    sizes: np.ndarray
    data: list[np.ndarray]
    """What keeps them there."""

    @staticmethod
    def of(arrays: Sequence[pa.Array]) -> "Strings":
        """Raises ValueError for offsets that lead out of their data: the addresses go to native code unchecked."""
        data = [_data(array) for array in arrays]
        offsets = [_offsets(array, held.size) for array, held in zip(arrays, data, strict=True)]
        places = [held.__array_interface__["data"][0] + o[:-1] for held, o in zip(data, offsets, strict=True)]
        addresses = np.concatenate([np.zeros(0, np.int64), *places]).astype(np.uint64)
        sizes = np.concatenate([np.zeros(0, np.int64), *map(np.diff, offsets)]).astype(np.uint32)
        return Strings(addresses, sizes, data)


class ByteColumn:
    """Is filled shard by shard; nobody may ask for a string before."""

    def __init__(self, count: int) -> None:
        self._addresses, self._sizes = np.zeros(count, np.uint64), np.zeros(count, np.uint32)
        self._data: list[np.ndarray] = []

    def fill(self, first: int, strings: Strings) -> None:
        rows = slice(first, first + len(strings.sizes))
        self._data += strings.data
        self._sizes[rows] = strings.sizes
        self._addresses[rows] = strings.addresses

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, row: int) -> np.ndarray:
        """uint8 [bytes], read-only, no copy; empty for a null."""
        if not 0 <= row < len(self):
            raise IndexError(f"image {row} of {len(self)}")
        assert self._addresses[row], f"the shard of image {row} is not open"
        return np.asarray(_View(self._data, int(self._addresses[row]), int(self._sizes[row])))

    def buffers(self, rows: np.ndarray) -> Buffers:
        """Where the strings of many rows lie. The column has to outlive it."""
        addresses = self._addresses[rows]
        assert addresses.all(), "the shard of an image is not open"
        return Buffers(addresses.astype(np.uintp, copy=False), self._sizes[rows].astype(np.uintp))


class _View:
    """What NumPy makes an array of that keeps the mapped files."""

    def __init__(self, data: list[np.ndarray], address: int, size: int) -> None:
        self.data = data
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, True)}


def _data(array: pa.Array) -> np.ndarray:
    data = array.buffers()[2]
    return np.zeros(1, np.uint8)[:0] if data is None else np.frombuffer(data, np.uint8)


def _offsets(array: pa.Array, data_bytes: int) -> NDArray[Any]:
    if not len(array):
        return np.zeros(1, np.int64)
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    offsets: NDArray[Any] = np.frombuffer(array.buffers()[1], width)[array.offset : array.offset + len(array) + 1]
    if offsets[0] < 0 or offsets[-1] > min(data_bytes, 2**32 - 1) or (offsets[1:] < offsets[:-1]).any():
        raise ValueError("byte strings that lie outside their data")
    return offsets.astype(np.int64)
