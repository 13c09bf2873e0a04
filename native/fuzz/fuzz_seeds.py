"""Writes the JPEG files that `fuzz.cpp` mutates: one small picture in every kind of file the decoder accepts.
Usage: `python native/fuzz/fuzz_seeds.py DIRECTORY`. Deterministic, so a mutant is named by its number alone.
"""

import sys
from pathlib import Path

import imagecodecs
import numpy as np
from PIL import Image

KINDS: dict[str, dict[str, object]] = {
    "444": {"subsampling": 0},
    "422": {"subsampling": 1},
    "420": {"subsampling": 2},
    "progressive-444": {"subsampling": 0, "progressive": True},
    "progressive-420": {"subsampling": 2, "progressive": True},
    "restart-444": {"subsampling": 0, "restart_marker_blocks": 3},
    "restart-420": {"subsampling": 2, "restart_marker_rows": 1},
    "optimized": {"quality": 98, "optimize": True},
    "rgb": {"keep_rgb": True},
    "exif": {"exif": b"Exif\0\0MM\0*\0\0\0\b\0\0\0\0\0\0", "icc_profile": b"\0" * 300},
}


def write_seeds(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    y, x = np.mgrid[0:53, 0:71]
    waves = np.stack([np.sin(x / 9 + y / 23), np.cos(x / 31 - y / 7), np.sin((x + y) / 13)], -1) * 90 + 128
    noise = np.random.default_rng(0).normal(0, 6, waves.shape)
    picture = Image.fromarray(np.clip(waves + noise, 0, 255).astype(np.uint8))
    for name, options in KINDS.items():
        picture.save(directory / f"{name}.jpg", **options)
    # Many bits a pixel, so that the seek index has places: it is at most 4 % of its file.
    rough = np.random.default_rng(1).integers(0, 256, (53, 151, 3), np.uint8)
    for name in ("444", "422", "420", "optimized"):
        Image.fromarray(rough).save(directory / f"rough-{name}.jpg", **{"quality": 97, **KINDS[name]})
    Image.fromarray(rough).convert("L").save(directory / "rough-L.jpg", quality=97)
    (directory / "rough-440.jpg").write_bytes(imagecodecs.jpeg8_encode(rough, level=97, subsampling="440"))
    for mode in ("L", "CMYK"):
        picture.convert(mode).save(directory / f"{mode}.jpg")
        picture.convert(mode).save(directory / f"{mode}-progressive.jpg", progressive=True)
    for width, height in ((1, 1), (1, 40), (17, 16)):
        picture.resize((width, height)).save(directory / f"{width}x{height}.jpg", subsampling=2)


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
