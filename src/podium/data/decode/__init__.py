"""JPEG files (or cached pixels) to a uint8 batch: decode, crop, resize, flip, one status per image. The work
is done by the native library in `native/`, one call per batch with the GIL released; where it was not built,
or with PODIUM_DECODER=pillow, Pillow does the same, several times slower. Boxes and flips are drawn elsewhere
(`crops`): nothing here is random. Buffers stay the caller's, and nothing is kept after a call.
"""

import os
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.decode import native, pillow
from podium.data.decode.status import MAX_OUT_SIZE, DecodeError, Int32, Status, Uint8, status_message
from podium.errors import UserError

__all__ = [
    "DecodeError",
    "Status",
    "backend",
    "backend_reason",
    "decode_batch",
    "decode_pixels",
    "jpeg_size",
    "resize_batch",
    "status_message",
]

JpegBytes = bytes | bytearray | memoryview | Uint8


def _choose(wanted: str, missing: str) -> tuple[ModuleType, str]:
    if wanted not in ("", "native", "pillow"):
        raise UserError(f"PODIUM_DECODER={wanted!r} is not known; use native or pillow, or leave it unset")
    if wanted == "native" and missing:
        raise UserError(f"PODIUM_DECODER=native, but {missing}")
    if wanted == "pillow":
        return pillow, "Pillow decodes, because PODIUM_DECODER=pillow"
    if missing:
        return pillow, f"Pillow decodes, several times slower: {missing}"
    return native, "the native decoder (libjpeg-turbo)"


@cache
def _chosen() -> tuple[ModuleType, str]:
    """On first use, not on import: a mistake in the variable is then an error of the command that decodes."""
    return _choose(os.environ.get("PODIUM_DECODER", ""), native.missing)


def _decoder() -> ModuleType:
    return _chosen()[0]


def backend() -> str:
    return "native" if _decoder() is native else "pillow"


def backend_reason() -> str:
    """One line for `doctor` and the log: what decodes, and why."""
    return _chosen()[1]


def jpeg_size(image: JpegBytes) -> tuple[int, int]:
    """Width and height from the header of a file that has its end; raises DecodeError."""
    return _decoder().jpeg_size(_view(image))


def decode_pixels(image: JpegBytes) -> Uint8:
    """The whole image as RGB [h, w, 3]; raises DecodeError. Frees the GIL: call it from many threads."""
    return _decoder().decode_pixels(_view(image))


def decode_batch(
    images: Sequence[JpegBytes], boxes: NDArray[Any], flips: NDArray[Any], out: Uint8, threads: int
) -> Int32:
    """out[i] = flip(resize(crop(decode(images[i]), boxes[i]))); returns a Status per image.

    boxes [n, 4] are x, y, w, h in image pixels; what lies beyond the image is reflected. flips [n] is
    boolean. out is [n, size, size, 3]; a box of that very size is copied, not resampled. A failed image's
    slot is black.
    """
    boxes, flips = _checked(len(images), boxes, flips, out, threads)
    return _decoder().decode_batch([_view(image) for image in images], boxes, flips, out, threads)


def resize_batch(images: Sequence[Uint8], boxes: NDArray[Any], flips: NDArray[Any], out: Uint8, threads: int) -> Int32:
    """As `decode_batch`, from what `decode_pixels` gave: the same bits as from the file."""
    boxes, flips = _checked(len(images), boxes, flips, out, threads)
    for i, image in enumerate(images):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.flags.c_contiguous:
            raise ValueError(f"image {i} is {image.dtype}{list(image.shape)}; needs packed uint8 [h, w, 3]")
    return _decoder().resize_batch(images, boxes, flips, out, threads)


def _view(image: JpegBytes) -> Uint8:
    view = image if isinstance(image, np.ndarray) else np.frombuffer(image, np.uint8)
    if view.dtype != np.uint8 or view.ndim != 1 or not view.flags.c_contiguous:
        raise ValueError(f"JPEG bytes are {view.dtype}{list(view.shape)}; need contiguous uint8 [bytes]")
    return view


def _checked(count: int, boxes: NDArray[Any], flips: NDArray[Any], out: Uint8, threads: int) -> tuple[Int32, Uint8]:
    size = out.shape[1] if out.ndim == 4 else 0
    if out.shape != (count, size, size, 3) or not 1 <= size <= MAX_OUT_SIZE:
        raise ValueError(f"out is {list(out.shape)}; needs [{count}, size, size, 3], size 1 … {MAX_OUT_SIZE}")
    if out.dtype != np.uint8 or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("out must be uint8, contiguous and writeable")
    boxes, flips = np.ascontiguousarray(boxes, np.int32), np.ascontiguousarray(flips, np.uint8)
    if boxes.shape != (count, 4) or flips.shape != (count,):
        raise ValueError(f"boxes {list(boxes.shape)}, flips {list(flips.shape)}; need [{count}, 4], [{count}]")
    if threads < 1:
        raise ValueError(f"threads={threads}; needs 1 or more")
    return boxes, flips
