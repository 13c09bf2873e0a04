"""How many images per second one CPU core of this machine decodes, in about a second: training crops of JPEGs of
ImageNet's usual size and weight, made here from noise, so that no data set is needed.
"""

import io
import time

import numpy as np
from PIL import Image

from podium.data import decode
from podium.data.input.augment import train_crops
from podium.recipe.images import Data

_WIDTH, _HEIGHT = 500, 375
_IMAGES = 64


def measure(data: Data) -> float:
    """Images per second per core: one thread, the best of three rounds after a warm-up."""
    images = [_jpeg(seed) for seed in range(8)] * (_IMAGES // 8)
    samples = np.arange(_IMAGES)
    crops = train_crops(data, 0, samples * 0, samples=samples, sizes=np.tile([_WIDTH, _HEIGHT], (_IMAGES, 1)))
    out = np.empty((_IMAGES, data.image_size, data.image_size, 3), np.uint8)
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        decode.decode_batch(images, crops.boxes, crops.flips, out=out, threads=1)
        seconds.append(time.perf_counter() - began)
    return _IMAGES / min(seconds[1:])


def _jpeg(seed: int) -> bytes:
    """About 110 KB, ImageNet's mean: smooth shapes under grain, quality 96, 4:4:4."""
    rng = np.random.default_rng(seed)
    shapes = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(
        (_WIDTH, _HEIGHT), Image.Resampling.BICUBIC
    )
    grain = rng.normal(0, 5.8, (_HEIGHT, _WIDTH, 1))
    pixels = np.clip(np.asarray(shapes, np.float32) + grain, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=96, subsampling=0)
    return file.getvalue()
