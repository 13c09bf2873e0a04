"""Are the pixels those of libjpeg, bit for bit? Every file whole, and random crops of it, with its index and without.

python results/decode/identical.py --data imagenet-1000.tar > results/decode/identical.json
"""

import argparse
import json
import tarfile
from pathlib import Path

import numpy as np

from podium.bench import timing
from podium.data.decode import Buffers, native
from podium.data.decode.status import Crops, Uint8

CROPS, SIZE = 4, 224


def differences(file: Uint8, rng: np.random.Generator) -> tuple[int, bool]:
    """How many of the pictures of a file differ, and whether it has an index."""
    whole = native.libjpeg.decode_pixels(file)
    different = int((native.own.decode_pixels(file) != whole).any())
    index = native.own.build_index(file)
    height, width, _ = whole.shape
    w, h = (rng.integers(1, side + 1, CROPS) for side in (width, height))
    boxes = np.stack([rng.integers(0, width - w + 1), rng.integers(0, height - h + 1), w, h], axis=1).astype(np.int32)
    files = Buffers.of([file] * CROPS)
    outs = []
    for decoder, indexes in ((native.libjpeg, None), (native.own, None), (native.own, Buffers.of([index] * CROPS))):
        out = np.empty((CROPS, SIZE, SIZE, 3), np.uint8)
        crops = Crops(boxes, np.zeros(CROPS, np.uint8), out, 1)
        assert not decoder.decode_batch(files, crops, indexes, stale=None).any()
        outs.append(out)
    truth, *ours = outs
    return different + sum(int((out != truth).any(axis=(1, 2, 3)).sum()) for out in ours), index is not None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    rng, found = np.random.default_rng(0), []
    with tarfile.open(given.data) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            if stream is not None:
                found.append(differences(np.frombuffer(stream.read(), np.uint8), rng))
    result = {
        "command": f"python results/decode/identical.py --data {given.data.name}",
        "files": len(found),
        "files_with_index": sum(indexed for _, indexed in found),
        "pictures": len(found) * (1 + 2 * CROPS),
        "different": sum(different for different, _ in found),
        "machine": timing.machine("numpy"),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
