"""Operations of the augmentation policies on whole images, by the native library or, where there is none, by NumPy: the
same bits. `data.input.policy` draws which; here an operation is a row of seven integers, its kind first. Factors are in
units of 1/1024, so that everything is integer arithmetic.
"""

from collections.abc import Callable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from podium.data.decode import native
from podium.data.decode.status import Int32, Uint8

NUMBERS = 7
ONE, PLACE = 1024, 65536
"""A factor of 1, and a distance of one pixel."""
Numbers = NDArray[np.int64]


class Kind(IntEnum):
    NOTHING = 0
    AFFINE = 1
    """Six numbers: the source of pixel (x, y) is (a x + b y + c, d x + e y + f)."""
    BRIGHTNESS = 2
    CONTRAST = 3
    SATURATION = 4
    SHARPNESS = 5
    POSTERIZE = 6
    """How many bits stay."""
    SOLARIZE = 7
    """The least value that is inverted."""
    SOLARIZE_ADD = 8
    """What is added to the darker half."""
    AUTOCONTRAST = 9
    EQUALIZE = 10
    INVERT = 11


def change_batch(images: Uint8, operations: Int32, fill: Uint8, *, threads: int) -> None:
    """Carries out `operations` [n, each, 7] on `images` [n, size, size, 3], in place and in this order. Pixels from
    outside an image get the colour `fill`."""
    for name, array, kind in (("images", images, np.uint8), ("operations", operations, np.int32)):
        if array.dtype != kind or not array.flags.c_contiguous:
            raise ValueError(f"{name} are {array.dtype}; need contiguous {np.dtype(kind)}")
    if operations.shape[0::2] != (len(images), NUMBERS) or images.shape[1:] != (images.shape[1], images.shape[1], 3):
        raise ValueError(f"operations {list(operations.shape)} do not fit images {list(images.shape)}")
    if native.missing:
        for image, of_image in zip(images, operations, strict=True):
            for operation in of_image:
                image[:] = changed(image, operation, fill)
    else:
        native.change_batch(images, operations, fill, threads=threads)


def changed(image: Uint8, operation: Int32, fill: Uint8) -> Uint8:
    """One operation on one image, in NumPy."""
    kind, numbers = Kind(int(operation[0])), [int(number) for number in operation[1:]]
    if kind == Kind.NOTHING:
        return image
    if kind == Kind.AFFINE:
        return _moved(image, numbers, fill)
    return _CHANGES[kind](image.astype(np.int64), numbers[0]).astype(np.uint8)


def _blend(other: Numbers | int, own: Numbers, factor: int) -> Numbers:
    """From `other` at factor 0 to `own` at factor 1, and beyond."""
    return ((other * ONE + factor * (own - other) + ONE // 2) >> 10).clip(0, 255)


def _luma(x: Numbers) -> Numbers:
    return (x @ np.array([19595, 38470, 7471]) + 0x8000) >> 16


def _contrast(x: Numbers, factor: int) -> Numbers:
    grey = _luma(x)
    return _blend(int(2 * grey.sum() + grey.size) // (2 * grey.size), x, factor)


def _sharpness(x: Numbers, factor: int) -> Numbers:
    """The pixels at the edge have no smooth neighbourhood and stay."""
    n = len(x)
    parts = [x[r : n - 2 + r, c : n - 2 + c] for r in range(3) for c in range(3)]
    found, inner = x.copy(), x[1:-1, 1:-1]
    found[1:-1, 1:-1] = _blend((2 * (sum(parts) + 4 * inner) + 13) // 26, inner, factor)
    return found


def _autocontrast(x: Numbers, _: int) -> Numbers:
    low, high = x.min((0, 1)), x.max((0, 1))
    return np.where(high > low, (x - low) * 255 // np.maximum(1, high - low), x)


def _equalize(x: Numbers, _: int) -> Numbers:
    found = x.copy()
    for colour in range(3):
        counts = np.bincount(x[..., colour].ravel(), minlength=256)
        step = int(counts.sum() - counts[counts.nonzero()[0][-1]]) // 255
        if step:
            before = np.concatenate([[0], np.cumsum(counts)[:-1]])
            found[..., colour] = np.minimum(255, (step // 2 + before) // step)[x[..., colour]]
    return found


_CHANGES: dict[Kind, Callable[[Numbers, int], Numbers]] = {
    Kind.BRIGHTNESS: lambda x, factor: _blend(0, x, factor),
    Kind.CONTRAST: _contrast,
    Kind.SATURATION: lambda x, factor: _blend(_luma(x)[..., None], x, factor),
    Kind.SHARPNESS: _sharpness,
    Kind.POSTERIZE: lambda x, bits: x & (0xFF00 >> bits),
    Kind.SOLARIZE: lambda x, least: np.where(x < least, x, 255 - x),
    Kind.SOLARIZE_ADD: lambda x, more: np.where(x < 128, (x + more).clip(0, 255), x),
    Kind.AUTOCONTRAST: _autocontrast,
    Kind.EQUALIZE: _equalize,
    Kind.INVERT: lambda x, _: 255 - x,
}


def _moved(image: Uint8, matrix: list[int], fill: Uint8) -> Uint8:
    size = len(image)
    y, x = np.mgrid[:size, :size]
    a, b, c, d, e, f = matrix
    from_x, from_y = (a * x + b * y + c) >> 16, (d * x + e * y + f) >> 16
    inside = (from_x >= 0) & (from_x < size) & (from_y >= 0) & (from_y < size)
    found = np.broadcast_to(fill, image.shape).copy()
    found[inside] = image[from_y[inside], from_x[inside]]
    return found
