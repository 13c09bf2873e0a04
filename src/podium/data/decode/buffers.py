"""Where the byte strings of a batch lie in memory, as arrays that go to the native library as they are. Files
that are slices of a few large buffers (shards, the byte cache) have their addresses by array arithmetic,
without an object per file.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.decode.status import Uint8

ByteString = bytes | bytearray | memoryview | Uint8
Uintp = NDArray[np.uintp]


@dataclass(frozen=True)
class Buffers:
    """Addresses and sizes of n byte strings; a size of 0 is none. The caller keeps the bytes alive and in
    place for as long as this is used.
    """

    addresses: Uintp
    sizes: Uintp

    def __post_init__(self) -> None:
        for array in (self.addresses, self.sizes):
            if array.dtype != np.uintp or array.ndim != 1 or not array.flags.c_contiguous:
                raise ValueError(f"addresses and sizes are {array.dtype}{list(array.shape)}; need contiguous uintp [n]")
        if self.addresses.shape != self.sizes.shape:
            raise ValueError(f"{self.addresses.size} addresses, {self.sizes.size} sizes; need one of each per image")

    def __len__(self) -> int:
        return self.addresses.size

    @staticmethod
    def of(strings: Sequence[ByteString | None]) -> "Buffers":
        """Those of Python's own objects, which the caller keeps."""
        found = [(0, 0) if string is None else _place(string) for string in strings]
        table = np.array(found, np.uintp).reshape(-1, 2).T.copy()
        return Buffers(table[0], table[1])

    def views(self) -> list[Uint8]:
        """The bytes themselves, not copied."""
        return [_view_at(int(at), int(size)) for at, size in zip(self.addresses, self.sizes, strict=True)]


def view(string: ByteString) -> Uint8:
    array = string if isinstance(string, np.ndarray) else np.frombuffer(string, np.uint8)
    if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.c_contiguous:
        raise ValueError(f"bytes are {array.dtype}{list(array.shape)}; need contiguous uint8 [bytes]")
    return array


def address(array: NDArray[Any]) -> int:
    return array.__array_interface__["data"][0]  # a third of the time of array.ctypes.data


def _place(string: ByteString) -> tuple[int, int]:
    array = view(string)
    return address(array), array.size


def _view_at(at: int, size: int) -> Uint8:
    if size == 0:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))
