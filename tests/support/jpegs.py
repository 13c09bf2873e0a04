"""JPEG files of every kind for the decoder's tests, and short ways through it."""

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from podium.data import decode
from podium.data.decode import Status, native

Pixels = NDArray[np.uint8]
Box = tuple[int, int, int, int]
BACKENDS = ["pillow"] if native.missing else ["native", "libjpeg", "pillow"]


def scene(width: int, height: int, seed: int = 0) -> Pixels:
    """Smooth colours, sharp edges and some noise: what upsampling, filters and rounding all react to."""
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([np.sin(x / 9 + y / 23), np.cos(x / 31 - y / 7), np.sin((x + y) / 13)], -1) * 90 + 128
    waves[(x // 17 + y // 11) % 3 == 0] += (60, -50, 40)
    noise = np.random.default_rng(seed).normal(0, 6, waves.shape)
    return np.clip(waves + noise, 0, 255).astype(np.uint8)


def jpeg(pixels: Pixels, mode: str = "RGB", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, "JPEG", **{"quality": 90, **options})
    return buffer.getvalue()


SCENE = scene(149, 117)
FILES = {
    "444": jpeg(SCENE, subsampling=0),
    "422": jpeg(SCENE, subsampling=1),
    "420": jpeg(SCENE, subsampling=2),
    "grey": jpeg(SCENE, "L"),
    "cmyk": jpeg(SCENE, "CMYK"),
    "progressive-444": jpeg(SCENE, subsampling=0, progressive=True),
    "progressive-420": jpeg(SCENE, subsampling=2, progressive=True),
    "restart-444": jpeg(SCENE, subsampling=0, restart_marker_blocks=7),
    "restart-420": jpeg(SCENE, subsampling=2, restart_marker_rows=1),
    "optimized": jpeg(SCENE, optimize=True, quality=98),
    "rgb": jpeg(SCENE, keep_rgb=True),
    "1x1": jpeg(scene(1, 1)),
    "1x40": jpeg(scene(1, 40), subsampling=2),
    "3x2": jpeg(scene(3, 2), subsampling=2),
    "17x16-420": jpeg(scene(17, 16), subsampling=2),
}


def real_images() -> Iterator[bytes]:
    beside = Path(__file__).parents[3] / "shared" / "data"
    sample = Path(os.environ.get("PODIUM_TEST_DATA", beside)) / "imagenet-sample.tar"
    if not sample.exists():
        return
    with tarfile.open(sample) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".JPEG"):
                file = archive.extractfile(member)
                assert file is not None
                yield file.read()


def one(image: bytes, box: Box, flip: bool, size: int) -> Pixels:
    out = np.full((1, size, size, 3), 77, np.uint8)
    statuses = decode.decode_batch([image], np.array([box]), np.array([flip]), out=out, threads=1)
    assert statuses.tolist() == [Status.OK]
    return out[0]


def one_from_pixels(pixels: Pixels, box: Box, flip: bool, size: int) -> Pixels:
    out = np.full((1, size, size, 3), 77, np.uint8)
    assert decode.resize_batch([pixels], np.array([box]), np.array([flip]), out=out, threads=1).tolist() == [Status.OK]
    return out[0]


def crop_boxes(sizes: list[tuple[int, int]], seed: int) -> list[Box]:
    rng = np.random.default_rng(seed)
    boxes = []
    for width, height in sizes:
        w, h = int(rng.integers(1, width + 1)), int(rng.integers(1, height + 1))
        x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
        boxes.append((x, y, w, h))
    return boxes
