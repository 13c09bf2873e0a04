"""JPEG files (or cached pixels) to a uint8 batch: decode, crop, resize, flip, one status per image. The work
is done by the native library in `native/decode/`, one call per batch with the GIL released: by its own
decoder, which reads little more of a file than its crop where the file's seek index is given, and by
libjpeg-turbo for the kinds of JPEG that are left. Where the library was not built Pillow does the same,
several times slower. PODIUM_DECODER=native, libjpeg or pillow chooses; the first two give the same bits.
Boxes and flips are drawn elsewhere (`augment`): nothing here is random. Buffers stay the caller's, and nothing
is kept after a call.
"""

import os
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.decode import native, pillow
from podium.data.decode.buffers import Buffers, ByteString, view
from podium.data.decode.status import MAX_OUT_SIZE, Crops, DecodeError, Int32, Status, Uint8, status_message
from podium.errors import UserError

__all__ = [
    "Buffers",
    "DecodeError",
    "Status",
    "backend",
    "backend_reason",
    "build_index",
    "decode_batch",
    "decode_pixels",
    "jpeg_size",
    "resize_batch",
    "status_message",
]

Decoder = native.NativeDecoder | ModuleType  # the module is `pillow`
_DECODERS: dict[str, Decoder] = {"native": native.own, "libjpeg": native.libjpeg, "pillow": pillow}


def _choose(wanted: str, missing: str) -> tuple[str, str]:
    """The decoder's name, and why it."""
    if wanted not in ("", *_DECODERS):
        raise UserError(f"PODIUM_DECODER={wanted!r} is not known; use native, libjpeg or pillow, or leave it unset")
    if wanted in ("native", "libjpeg") and missing:
        raise UserError(f"PODIUM_DECODER={wanted}, but {missing}")
    if wanted == "libjpeg":
        return "libjpeg", "libjpeg-turbo decodes, because PODIUM_DECODER=libjpeg"
    if wanted == "pillow":
        return "pillow", "Pillow decodes, because PODIUM_DECODER=pillow"
    if missing:
        return "pillow", f"Pillow decodes, several times slower: {missing}"
    return "native", "the native decoder, and libjpeg-turbo for rare kinds of JPEG"


@cache
def _chosen() -> tuple[str, str]:
    """On first use, not on import: a mistake in the variable is then an error of the command that decodes."""
    return _choose(os.environ.get("PODIUM_DECODER", ""), native.missing)


def _decoder() -> Decoder:
    return _DECODERS[_chosen()[0]]


def backend() -> str:
    """The decoder's name: native, libjpeg or pillow."""
    return _chosen()[0]


def backend_reason() -> str:
    """One line for `doctor` and the log: what decodes, and why."""
    return _chosen()[1]


def jpeg_size(image: ByteString) -> tuple[int, int]:
    """Width and height from the header of a file that has its end; raises DecodeError."""
    return _decoder().jpeg_size(view(image))


def decode_pixels(image: ByteString) -> Uint8:
    """The whole image as RGB [h, w, 3]; raises DecodeError. Frees the GIL: call it from many threads."""
    return _decoder().decode_pixels(view(image))


def build_index(image: ByteString) -> bytes | None:
    """The file's seek index for `decode_batch`, at most 4 % of its bytes (or 16); None for a file of a kind
    that has none, which decodes all the same. Reads every code of the file, and raises DecodeError where
    decoding the whole image would. Frees the GIL.
    """
    return _decoder().build_index(view(image))


def decode_batch(
    images: Sequence[ByteString] | Buffers,
    boxes: NDArray[Any],
    flips: NDArray[Any],
    *,
    out: Uint8,
    threads: int,
    indexes: Sequence[ByteString | None] | Buffers | None = None,
    stale: NDArray[np.bool_] | None = None,
) -> Int32:
    """out[i] = flip(resize(crop(decode(images[i]), boxes[i]))); returns a Status per image.

    boxes [n, 4] are x, y, w, h in image pixels; what lies beyond the image is reflected. flips [n] is
    boolean. out is [n, size, size, 3]; a box of that very size is copied, not resampled. A failed image's
    slot is black. indexes are what `build_index` gave (None or empty for none); they change speed, not
    bits. stale [n], where given, is set where an index is not its file's: it was not used; build it again.
    """
    crops = _checked(len(images), boxes, flips, out=out, threads=threads)
    files = images if isinstance(images, Buffers) else Buffers.of(images)
    found = indexes if indexes is None or isinstance(indexes, Buffers) else Buffers.of(indexes)
    if found is not None and len(found) != len(files):
        raise ValueError(f"{len(found)} indexes for {len(files)} images; need one (or None) for each")
    if stale is not None and (stale.shape != (len(files),) or stale.dtype != np.bool_ or not stale.flags.c_contiguous):
        raise ValueError(f"stale is {stale.dtype}{list(stale.shape)}; needs contiguous bool [{len(files)}]")
    return _decoder().decode_batch(files, crops, found, stale=None if stale is None else stale.view(np.uint8))


def resize_batch(
    images: Sequence[Uint8] | Buffers,
    boxes: NDArray[Any],
    flips: NDArray[Any],
    *,
    out: Uint8,
    threads: int,
    sizes: NDArray[Any] | None = None,
) -> Int32:
    """Like `decode_batch`, but from the result of `decode_pixels`; gives the same bits. Buffers need `sizes`
    [n, 2], the width and height of each; an image without pixels has the status BAD_BOX.
    """
    crops = _checked(len(images), boxes, flips, out=out, threads=threads)
    if not isinstance(images, Buffers):
        for i, image in enumerate(images):
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.flags.c_contiguous:
                raise ValueError(f"image {i} is {image.dtype}{list(image.shape)}; needs packed uint8 [h, w, 3]")
        sizes = np.array([image.shape[1::-1] for image in images], np.int32).reshape(-1, 2)
        images = Buffers.of([image.reshape(-1) for image in images])
    if sizes is None or sizes.shape != (len(images), 2) or (sizes < 0).any():
        raise ValueError(f"sizes are {sizes if sizes is None else list(sizes.shape)}; need [{len(images)}, 2]")
    if (sizes.astype(np.uintp).prod(axis=1) * 3 != images.sizes).any():
        raise ValueError("images have more or fewer bytes than width × height × 3")
    return _decoder().resize_batch(images, np.ascontiguousarray(sizes, np.int32), crops)


def _checked(count: int, boxes: NDArray[Any], flips: NDArray[Any], *, out: Uint8, threads: int) -> Crops:
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
    return Crops(boxes, flips, out, threads)
