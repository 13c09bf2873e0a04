"""How fast many images are prepared, and in how much memory: makes tars of small JPEGs and prepares them.

    python results/prepare/large.py --images 1000000 14000000 --folder /scratch/large > results/prepare/large.json

An archive holds 10,000 images in class folders; every image is a real JPEG of 16×16 pixels, one of 64, so that making
14 million takes minutes and 32 GB with their shards. The preparation runs in a process of its own, whose greatest
resident memory is what the kernel says of it. On a machine that has other work the rate to compare is that per second
of CPU time.
"""

import argparse
import io
import json
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from podium.bench import timing

IMAGES_PER_TAR = 10_000
CLASSES = 21_841

_PREPARE = """
import json, resource, sys
from podium.data.prepare import prepare
report = prepare(sys.argv[1], sys.argv[2])
used = resource.getrusage(resource.RUSAGE_SELF)
figures = {"images": report.images["train"], "shards": report.shards, "seconds": report.seconds}
cpu_seconds = round(used.ru_utime + used.ru_stime, 1)
print(json.dumps({**figures, "cpu_seconds": cpu_seconds, "peak_mb": used.ru_maxrss // 1024}))
"""
_OPEN = """
import json, sys, time
from podium.data.dataset.shards import ImageSet
began = time.perf_counter()
images = ImageSet.open(sys.argv[1], "train")
opened = time.perf_counter() - began
assert images.image(len(images) - 1)[0] == 0xFF
print(json.dumps({"open_seconds": round(opened, 3)}))
"""


def jpegs() -> list[bytes]:
    rng, made = np.random.default_rng(0), []
    for _ in range(64):
        out = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(out, "JPEG", quality=50)
        made.append(out.getvalue())
    return made


def make(folder: Path, images: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files = jpegs()
    padded = [jpeg + bytes(-len(jpeg) % 512) for jpeg in files]
    for number in range(-(-images // IMAGES_PER_TAR)):
        parts = []
        for i in range(number * IMAGES_PER_TAR, min(images, (number + 1) * IMAGES_PER_TAR)):
            member = tarfile.TarInfo(f"n{i * 7919 % CLASSES:08d}/n{i:08d}_{i % 977}.JPEG")
            member.size = len(files[i % 64])
            parts += [member.tobuf(tarfile.USTAR_FORMAT), padded[i % 64]]
        (folder / f"part-{number:05d}.tar").write_bytes(b"".join([*parts, bytes(1024)]))


def run(code: str, *arguments: str) -> dict:
    output = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def measured(folder: Path, images: int, *, keep: bool) -> dict:
    source, out = folder / f"source-{images}", folder / f"prepared-{images}"
    began = time.perf_counter()
    make(source, images)
    result = {"made_seconds": round(time.perf_counter() - began, 1), **run(_PREPARE, str(source), str(out))}
    result["images_per_second"] = round(images / result["seconds"])
    result["images_per_cpu_second"] = round(images / result["cpu_seconds"])
    result |= run(_OPEN, str(out))
    shutil.rmtree(source)
    if not keep:
        shutil.rmtree(out)
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, nargs="+", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--keep", action="store_true", help="leave the prepared directories")
    given = parser.parse_args()
    sizes = [measured(given.folder, images, keep=given.keep) for images in given.images]
    print(json.dumps({"sizes": sizes, "machine": timing.machine("pyarrow", "numpy")}, indent=1))


if __name__ == "__main__":
    main()
