"""Which part of each training image is its neighbour's (mixup, CutMix), and which is erased: drawn in NumPy from (seed,
epoch, image), carried out on the device (`step.pixels`).

Places 2k and 2k + 1 of a batch are neighbours, and each is the other's partner: a chip, and a part of its batch under
`accumulate`, holds both, so that no number of chips or hosts can change a pair (docs/decisions/010).
"""

import numpy as np
from scipy.special import betaincinv

from podium.data.input import counter_rng
from podium.recipe.augmentation import Augment

_FIRST_OF_MIX, _FIRST_OF_ERASING = 64, 72  # crops take the draws before
_TRIES = 10
_AREAS, _LOG_RATIOS = (0.02, 0.33), np.log([0.3, 3.3])


def mixes(augment: Augment, keys: np.ndarray, size: int) -> np.ndarray:
    """float32 [n, 6]: the share of its own pixels that an image keeps everywhere (mixup), the rectangle left, top,
    right, bottom that is its neighbour's (CutMix), and the share of the whole that is its own then. An image that is
    not mixed has (1, 0, 0, 0, 0, 1)."""
    draws = counter_rng.uniform(keys, _FIRST_OF_MIX, _FIRST_OF_MIX + 5)
    cuts = (draws[:, 0] < 0.5) | (augment.mixup == 0) if augment.cutmix else np.zeros(len(draws), bool)
    kept = np.ones(len(draws))
    for alpha, these in ((augment.mixup, ~cuts), (augment.cutmix, cuts)):
        if these.any():
            kept[these] = betaincinv(alpha, alpha, draws[these, 1])
    mixed = draws[:, 2] < augment.mix_share
    found = np.zeros((len(draws), 6), np.float32)
    found[:, 0] = np.where(mixed & ~cuts, kept, 1)
    side = np.floor(size * np.sqrt(1 - kept))
    corner = np.floor(draws[:, 3:5] * size) - side[:, None] // 2  # the rectangle's middle is anywhere
    box = np.concatenate([corner, corner + side[:, None]], axis=1).clip(0, size)
    found[:, 1:5] = np.where((mixed & cuts)[:, None], box, 0)
    found[:, 5] = found[:, 0] * (1 - (found[:, 3] - found[:, 1]) * (found[:, 4] - found[:, 2]) / size**2)
    return found


def erased(augment: Augment, keys: np.ndarray, size: int) -> np.ndarray:
    """int32 [n, 4]: the rectangle left, top, right, bottom that is painted over; empty where none is."""
    draws = counter_rng.uniform(keys, _FIRST_OF_ERASING, _FIRST_OF_ERASING + 1 + 4 * _TRIES)
    areas, ratios, right, down = np.moveaxis(draws[:, 1:].reshape(len(draws), _TRIES, 4), -1, 0)
    area = (_AREAS[0] + (_AREAS[1] - _AREAS[0]) * areas) * size * size
    ratio = np.exp(_LOG_RATIOS[0] + (_LOG_RATIOS[1] - _LOG_RATIOS[0]) * ratios)
    width, height = np.round(np.sqrt(area * ratio)), np.round(np.sqrt(area / ratio))
    fits = (width < size) & (height < size)
    left, top = np.floor(right * (size - width + 1)), np.floor(down * (size - height + 1))
    boxes = np.stack([left, top, left + width, top + height], axis=-1)
    first = boxes[np.arange(len(draws)), fits.argmax(axis=1)]
    wanted = (draws[:, 0] < augment.erasing) & fits.any(axis=1)
    return np.where(wanted[:, None], first, 0).astype(np.int32)
