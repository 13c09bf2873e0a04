"""One byte changed at a time, in every file of a prepared directory and of a finished run: is it named by `podium
verify`, and is what it does not name without effect? Prints JSON.

    python results/damage/flips.py [--count 1000] [--seed 0]      (so many in each of the two)
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.flips import harmless, unnoticed
from tests.support.made_sources import folder_files
from tests.support.small_runs import small_recipe

from podium.data.dataset import verify as dataset
from podium.data.prepare import prepare
from podium.train import verify as run
from podium.train.run import train_recipe


def prepared(folder: Path) -> Path:
    for name, image in folder_files().items():
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "source" / name).write_bytes(image)
    prepare(folder / "source", folder / "prepared")
    return folder / "prepared"


def tried(directory: Path, count: int, seed: int, *, changes: Callable[[Path], list[str]]) -> dict[str, object]:
    assert changes(directory) == []
    silent = unnoticed(directory, count, seed=seed, changes=changes)
    bad = [flip for flip in silent if not harmless(flip)]
    files = sorted({flip.file.name for flip in silent} - {flip.file.name for flip in bad})
    return {
        "files": sum(file.is_file() for file in directory.rglob("*")),
        "flips": count,
        "named": count - len(silent),
        "harmless": len(silent) - len(bad),
        "harmless_in": files,
        "silently_wrong": [f"{flip.file.relative_to(directory)} byte {flip.at} mask {flip.mask}" for flip in bad],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    began = time.monotonic()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = prepared(folder)
        train_recipe(small_recipe(torus="1x1", epochs=12), data, folder / "run")
        count, seed = arguments.count, arguments.seed
        about = {
            "command": f"python results/damage/flips.py --count {count} --seed {seed}",
            "commit": commit,
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "prepared directory": tried(data, count, seed, changes=dataset.changes),
            "run": tried(folder / "run", count, seed, changes=run.changes),
        }
    print(json.dumps({**about, "seconds": round(time.monotonic() - began)}, indent=1))


if __name__ == "__main__":
    main()
