"""What part of each image the network sees, as boxes (x, y, width, height) in the image's own pixels, and flips.
Drawn here in NumPy from (seed, epoch, sample), cut out by the decoder, so a draw can be tested without a picture.
"""

from dataclasses import dataclass

import numpy as np

from podium.data.input import counter_rng
from podium.recipe.images import Data

_TRIES = 10


@dataclass(frozen=True)
class Crops:
    boxes: np.ndarray
    """int32 [n, 4]: x, y, width, height; a shifted crop's box may leave the image, which is then reflected."""
    flips: np.ndarray
    """uint8 [n]"""
    colours: np.ndarray
    """float32 [n, 3]: factors of brightness, contrast, saturation."""


def train_crops(data: Data, seed: int, epochs: np.ndarray, *, samples: np.ndarray, sizes: np.ndarray) -> Crops:
    """The crops of `samples` (whose width and height are `sizes` [n, 2]) in their epochs."""
    keys = counter_rng.key(seed, epochs, samples)
    draws = counter_rng.uniform(keys, 0, 6)
    flips = _flips(data, seed, epochs, samples=samples, draws=draws[:, 0]) * np.uint8(data.flip)
    colours = (1 + data.colour_jitter * (2 * draws[:, 1:4] - 1)).astype(np.float32)
    if data.crop == "resized":
        boxes = _resized(keys, data.min_area, sizes)
    elif data.crop == "shifted":
        boxes = _shifted(draws[:, 4:6], data.shift_pixels, sizes)
    else:
        boxes = centre_boxes(data.eval_share, sizes)
    return Crops(boxes, flips, colours)


def _flips(data: Data, seed: int, epochs: np.ndarray, *, samples: np.ndarray, draws: np.ndarray) -> np.ndarray:
    if data.flip_order == "random":
        return (draws < 0.5).astype(np.uint8)
    first = counter_rng.uniform(counter_rng.key(seed, 0, samples), 0, 1)[:, 0] < 0.5
    return ((first + np.asarray(epochs)) % 2).astype(np.uint8)


def eval_crops(data: Data, sizes: np.ndarray) -> Crops:
    n = len(sizes)
    return Crops(centre_boxes(data.eval_share, sizes), np.zeros(n, np.uint8), np.ones((n, 3), np.float32))


def centre_boxes(share: float, sizes: np.ndarray) -> np.ndarray:
    """The centred square whose side is `share` of the shorter side: at 0.875 the usual "resize to 256, cut 224"."""
    side = np.maximum(1, np.round(share * sizes.min(axis=1))).astype(np.int32)
    corner = (sizes - side[:, None]) // 2
    return np.concatenate([corner, np.repeat(side[:, None], 2, axis=1)], axis=1).astype(np.int32)


def _resized(keys: np.ndarray, min_area: float, sizes: np.ndarray) -> np.ndarray:
    """Inception's crop: an area of [min_area, 1] of the image at an aspect ratio of [3/4, 4/3], the first of ten tries
    that fits into the image; where none does, the largest centred crop of an allowed ratio."""
    boxes, fits = _tries(counter_rng.uniform(keys, 4, 8), min_area, sizes)
    boxes = boxes[:, 0]
    again = np.flatnonzero(~fits[:, 0])  # one in sixteen: only for these are the other nine drawn
    if again.size:
        others, fits = _tries(counter_rng.uniform(keys[again], 8, 4 + 4 * _TRIES), min_area, sizes[again])
        first = others[np.arange(again.size), fits.argmax(axis=1)]
        boxes[again] = np.where(fits.any(axis=1, keepdims=True), first, _largest_allowed(sizes[again]))
    return boxes.astype(np.int32)


def _tries(draws: np.ndarray, min_area: float, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Boxes [n, tries, 4] from draws [n, 4 · tries], and whether each fits into its image."""
    areas, ratios, right, down = np.moveaxis(draws.reshape(len(draws), -1, 4), -1, 0)
    width, height = (sizes[:, i, None].astype(np.float64) for i in (0, 1))
    area = (min_area + (1 - min_area) * areas) * width * height
    ratio = np.exp(np.log(3 / 4) + (np.log(4 / 3) - np.log(3 / 4)) * ratios)
    w, h = np.round(np.sqrt(area * ratio)), np.round(np.sqrt(area / ratio))
    x, y = np.floor(right * (width - w + 1)), np.floor(down * (height - h + 1))
    fits = (w >= 1) & (h >= 1) & (w <= width) & (h <= height)
    return np.stack([x, y, w, h], axis=-1), fits


def _largest_allowed(sizes: np.ndarray) -> np.ndarray:
    width, height = sizes[:, 0], sizes[:, 1]
    w = np.maximum(1, np.minimum(width, np.floor(height * 4 / 3)))
    h = np.maximum(1, np.minimum(height, np.floor(width * 4 / 3)))
    return np.stack([(width - w) // 2, (height - h) // 2, w, h], axis=1)


def _shifted(draws: np.ndarray, shift_pixels: int, sizes: np.ndarray) -> np.ndarray:
    """The whole image moved by up to `shift_pixels` in each direction: CIFAR's pad-and-crop."""
    shift = np.floor(draws * (2 * shift_pixels + 1)) - shift_pixels
    return np.concatenate([shift, sizes], axis=1).astype(np.int32)
