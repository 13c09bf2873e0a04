"""Which operations of an augmentation policy change each training image, and how strongly: drawn in NumPy from (seed,
epoch, image), carried out on the decoded images by `data.decode.change`.

`trivial` is TrivialAugment's wide space (arXiv 2103.10158): one of 14 operations, at one of 31 strengths. `random` is
RandAugment as timm has it ("rand-m7-mstd0.5-inc1"): several of 15 operations, their strength drawn about
`augment.magnitude`. Distances are shares of the image's side: 32 of 224 pixels for trivial, 45 % for random.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from podium.data.decode.change import NUMBERS, ONE, PLACE, Kind
from podium.data.input import counter_rng
from podium.recipe.augmentation import Augment

_FIRST = 128  # of the draws; crops, mixing and erasing take those before
_DRAWS = 4
_TRIVIAL_STRENGTHS = 31
Strength = Callable[[float], list[int]]


def policy_operations(augment: Augment, keys: np.ndarray, size: int) -> np.ndarray:
    """int32 [n, each, 7]: what is done to each image of this size, in order."""
    each = augment.operations if augment.policy == "random" else 1
    draws = counter_rng.uniform(keys, _FIRST, _FIRST + _DRAWS * each).reshape(len(keys), each, _DRAWS)
    choices = _random(size) if augment.policy == "random" else _trivial(size)
    which = (draws[..., 0] * len(choices)).astype(int)
    if augment.policy == "random":
        level = augment.magnitude + augment.magnitude_spread * ndtri(np.clip(draws[..., 1], 1e-12, 1 - 1e-12))
        strengths, done = np.clip(level, 0, 10) / 10, draws[..., 3] < augment.operation_share
    else:
        steps = np.floor(draws[..., 1] * _TRIVIAL_STRENGTHS)
        strengths, done = steps / (_TRIVIAL_STRENGTHS - 1), np.ones_like(which, bool)
    signed = np.where(draws[..., 2] < 0.5, -strengths, strengths)
    found = np.zeros((*which.shape, NUMBERS), np.int32)
    for at in np.argwhere(done):
        kind, numbers = choices[which[*at]]
        arguments = numbers(float(signed[*at]))
        found[*at, 0], found[*at, 1 : 1 + len(arguments)] = kind, arguments
    return found


def _trivial(size: int) -> list[tuple[Kind, Strength]]:
    return [
        (Kind.NOTHING, _none),
        *_geometry(size, shear=0.99, distance=32 / 224, degrees=135),
        *((kind, lambda s: [round(ONE * (1 + 0.99 * s))]) for kind in _BLENDS),
        (Kind.POSTERIZE, lambda s: [8 - round(6 * abs(s))]),
        (Kind.SOLARIZE, lambda s: [round(255 * (1 - abs(s)))]),
        (Kind.AUTOCONTRAST, _none),
        (Kind.EQUALIZE, _none),
    ]


def _random(size: int) -> list[tuple[Kind, Strength]]:
    return [
        (Kind.AUTOCONTRAST, _none),
        (Kind.EQUALIZE, _none),
        (Kind.INVERT, _none),
        *_geometry(size, shear=0.3, distance=0.45, degrees=30),
        *((kind, lambda s: [round(ONE * max(0.1, 1 + 0.9 * s))]) for kind in _BLENDS),
        (Kind.POSTERIZE, lambda s: [4 - int(4 * abs(s))]),
        (Kind.SOLARIZE, lambda s: [256 - int(256 * abs(s))]),
        (Kind.SOLARIZE_ADD, lambda s: [int(110 * abs(s))]),
    ]


_BLENDS = (Kind.BRIGHTNESS, Kind.SATURATION, Kind.CONTRAST, Kind.SHARPNESS)


def _none(_: float) -> list[int]:
    return []


def _geometry(size: int, *, shear: float, distance: float, degrees: float) -> list[tuple[Kind, Strength]]:
    """Shear and move along both axes, and rotate about the middle, by at most so much."""

    def rotated(s: float) -> list[int]:
        angle = np.deg2rad(degrees * s)
        cos, sin, middle = float(np.cos(angle)), float(np.sin(angle)), size / 2
        return affine(cos, sin, middle * (1 - cos - sin), -sin, cos, middle * (1 + sin - cos))

    return [
        (Kind.AFFINE, lambda s: affine(1, shear * s, 0, 0, 1, 0)),
        (Kind.AFFINE, lambda s: affine(1, 0, 0, shear * s, 1, 0)),
        (Kind.AFFINE, lambda s: affine(1, 0, distance * size * s, 0, 1, 0)),
        (Kind.AFFINE, lambda s: affine(1, 0, 0, 0, 1, distance * size * s)),
        (Kind.AFFINE, rotated),
    ]


def affine(*matrix: float) -> list[int]:
    """The six numbers of `Kind.AFFINE` for a matrix that maps the middles of pixels, as Pillow's does."""
    a, b, c, d, e, f = matrix
    return [round(PLACE * v) for v in (a, b, (a + b) / 2 + c, d, e, (d + e) / 2 + f)]
