"""The native library behind ctypes, which releases the GIL for the length of a call. Arguments arrive checked
from `decode`; every pointer passed is kept alive by the caller's arrays until the call returns, and the
library keeps none.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import podium
from podium.data.decode.buffers import Buffers, address
from podium.data.decode.status import Crops, DecodeError, Int32, Status, Uint8

LIBRARY_NAME = "libpodium_native.so"
_ABI = 3

LIBJPEG, PLAIN, AVX2 = 1, 2, 4  # podium_flags

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32


class _Batch(ctypes.Structure):
    """podium_batch."""

    _fields_ = (
        *((name, _INT) for name in ("count", "out_size", "threads", "flags")),
        *((name, _POINTER) for name in ("images", "image_bytes", "sizes_wh", "indexes", "index_bytes")),
        *((name, _POINTER) for name in ("boxes", "flips", "out", "statuses", "stale")),
    )


class _Changes(ctypes.Structure):
    """podium_changes."""

    _fields_ = (
        *((name, _INT) for name in ("count", "size", "each", "threads")),
        *((name, _POINTER) for name in ("operations", "fill", "images")),
    )


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "podium_native_abi": (_INT, ()),
    "podium_status_message": (ctypes.c_char_p, (_INT,)),
    "podium_jpeg_size": (_INT, (_POINTER, _SIZE, _POINTER)),
    "podium_decode_pixels": (_INT, (_POINTER, _SIZE, _POINTER, _INT, _POINTER)),
    "podium_build_index": (_INT, (_POINTER, _SIZE, _INT, _POINTER, _POINTER)),
    "podium_decode_batch": (None, (_POINTER,)),
    "podium_resize_batch": (None, (_POINTER,)),
    "podium_change_batch": (_INT, (_POINTER,)),
}


def _load() -> tuple[ctypes.CDLL | None, str]:
    # An editable install keeps the library apart from the sources; the package's path has both places.
    found = [path for path in (Path(place) / LIBRARY_NAME for place in podium.__path__) if path.exists()]
    if not found:
        return None, f"no {LIBRARY_NAME}; install a C++ compiler and libjpeg-turbo-dev, then Podium again"
    try:
        library = ctypes.CDLL(str(found[0]))
        library.podium_native_abi.restype = _INT
        if (abi := library.podium_native_abi()) != _ABI:
            return None, f"{LIBRARY_NAME} has interface {abi}, this Podium needs {_ABI}; install Podium again"
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        return None, f"{LIBRARY_NAME} cannot be loaded ({error}); install Podium again"
    return library, ""


# `missing` says why there is no library, and is empty where there is one.
library: Any
library, missing = _load()


def status_message(status: int) -> str:
    return library.podium_status_message(status).decode()


def change_batch(images: Uint8, operations: Int32, fill: Uint8, *, threads: int) -> None:
    """What `data.decode.change` describes, on several threads."""
    count, size, each = len(images), images.shape[1], operations.shape[1]
    changes = _Changes(count=count, size=size, each=each, threads=threads)
    changes.operations, changes.fill, changes.images = address(operations), address(fill), address(images)
    _check(library.podium_change_batch(ctypes.byref(changes)))


class NativeDecoder:
    """The library with some of its flags. They choose how it works, never what comes out."""

    def __init__(self, flags: int = 0) -> None:
        self.flags = flags

    def jpeg_size(self, image: Uint8) -> tuple[int, int]:
        size_wh = np.zeros(2, np.int32)
        _check(library.podium_jpeg_size(address(image), image.size, address(size_wh)))
        return int(size_wh[0]), int(size_wh[1])

    def decode_pixels(self, image: Uint8) -> Uint8:
        width, height = self.jpeg_size(image)
        pixels = np.empty((height, width, 3), np.uint8)
        size_wh = np.array([width, height], np.int32)
        places = address(image), image.size, address(size_wh), self.flags, address(pixels)
        _check(library.podium_decode_pixels(*places))
        return pixels

    def build_index(self, image: Uint8) -> bytes | None:
        index = np.empty(image.size // 25 + 16, np.uint8)  # PODIUM_INDEX_BOUND
        index_bytes = np.zeros(1, np.uintp)
        places = address(image), image.size, self.flags, address(index), address(index_bytes)
        _check(library.podium_build_index(*places))
        return index[: int(index_bytes[0])].tobytes() or None

    def decode_batch(self, images: Buffers, crops: Crops, indexes: Buffers | None, *, stale: Uint8 | None) -> Int32:
        batch = _Batch(images=address(images.addresses), image_bytes=address(images.sizes))
        if indexes is not None:
            batch.indexes, batch.index_bytes = address(indexes.addresses), address(indexes.sizes)
        if stale is not None:
            batch.stale = address(stale)
        return self._run(library.podium_decode_batch, batch, crops)

    def resize_batch(self, images: Buffers, sizes_wh: Int32, crops: Crops) -> Int32:
        batch = _Batch(images=address(images.addresses), sizes_wh=address(sizes_wh))
        return self._run(library.podium_resize_batch, batch, crops)

    def _run(self, call: Callable[[Any], None], batch: _Batch, crops: Crops) -> Int32:
        statuses = np.full(len(crops.boxes), Status.NO_MEMORY, np.int32)
        batch.count, batch.out_size, batch.threads = len(crops.boxes), crops.out.shape[1], crops.threads
        batch.flags = self.flags
        batch.boxes, batch.flips = address(crops.boxes), address(crops.flips)
        batch.out, batch.statuses = address(crops.out), address(statuses)
        call(ctypes.byref(batch))
        return statuses


def _check(status: int) -> None:
    if status != Status.OK:
        raise DecodeError(status)


own = NativeDecoder()
libjpeg = NativeDecoder(LIBJPEG)
