"""The native library behind ctypes, which releases the GIL for the length of a call. Arguments arrive checked
from `decode`; every pointer passed is kept alive by the caller's arrays until the call returns, and the
library keeps none.
"""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import podium
from podium.data.decode.status import DecodeError, Int32, Status, Uint8

LIBRARY_NAME = "libpodium_native.so"
_ABI = 1

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32
_BATCH = (_INT, _POINTER, _POINTER, _POINTER, _POINTER, _INT, _POINTER, _INT, _POINTER)
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "podium_native_abi": (_INT, ()),
    "podium_status_message": (ctypes.c_char_p, (_INT,)),
    "podium_jpeg_size": (_INT, (_POINTER, _SIZE, _POINTER)),
    "podium_decode_pixels": (_INT, (_POINTER, _SIZE, _POINTER, _POINTER)),
    "podium_decode_batch": (None, _BATCH),
    "podium_resize_batch": (None, _BATCH),
}


def _load() -> tuple[ctypes.CDLL | None, str]:
    # An editable install keeps the library apart from the sources; the package's path has both places.
    found = [path for path in (Path(place) / LIBRARY_NAME for place in podium.__path__) if path.exists()]
    if not found:
        return None, f"no {LIBRARY_NAME}; install a C++ compiler and libjpeg-turbo-dev, then Podium again"
    try:
        library = ctypes.CDLL(str(found[0]))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        return None, f"{LIBRARY_NAME} cannot be loaded ({error}); install Podium again"
    if (abi := library.podium_native_abi()) != _ABI:
        return None, f"{LIBRARY_NAME} has interface {abi}, this Podium needs {_ABI}; install Podium again"
    return library, ""


# `missing` says why there is no library, and is empty where there is one.
library: Any
library, missing = _load()


def status_message(status: int) -> str:
    return library.podium_status_message(status).decode()


def jpeg_size(image: Uint8) -> tuple[int, int]:
    size_wh = np.zeros(2, np.int32)
    status = library.podium_jpeg_size(_address(image), image.size, _address(size_wh))
    if status != Status.OK:
        raise DecodeError(status)
    return int(size_wh[0]), int(size_wh[1])


def decode_pixels(image: Uint8) -> Uint8:
    width, height = jpeg_size(image)
    pixels = np.empty((height, width, 3), np.uint8)
    size_wh = np.array([width, height], np.int32)
    status = library.podium_decode_pixels(_address(image), image.size, _address(size_wh), _address(pixels))
    if status != Status.OK:
        raise DecodeError(status)
    return pixels


def decode_batch(images: Sequence[Uint8], boxes: Int32, flips: Uint8, out: Uint8, threads: int) -> Int32:
    image_bytes = np.array([image.size for image in images], np.uintp)
    return _run(library.podium_decode_batch, images, image_bytes, boxes, flips, out, threads)


def resize_batch(images: Sequence[Uint8], boxes: Int32, flips: Uint8, out: Uint8, threads: int) -> Int32:
    sizes_wh = np.array([(image.shape[1], image.shape[0]) for image in images], np.int32)
    return _run(library.podium_resize_batch, images, sizes_wh, boxes, flips, out, threads)


def _run(
    call: Callable[..., None],
    images: Sequence[Uint8],
    sizes: NDArray[Any],
    boxes: Int32,
    flips: Uint8,
    out: Uint8,
    threads: int,
) -> Int32:
    addresses = np.array([_address(image) for image in images], np.uintp)
    statuses = np.full(len(images), Status.NO_MEMORY, np.int32)
    arrays = addresses, sizes, boxes, flips
    call(len(images), *map(_address, arrays), out.shape[1], _address(out), threads, _address(statuses))
    return statuses


def _address(array: NDArray[Any]) -> int:
    return array.__array_interface__["data"][0]  # a third of the time of array.ctypes.data
