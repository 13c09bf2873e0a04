"""A run's directory: run.json says what the run is before it starts, summary.json how it ended; between them stand
the checkpoints, metrics.jsonl and TensorBoard's events. A directory that holds anything else is somebody's work
and is left alone.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.data.manifest import write_atomic
from podium.data.shards import ImageSet
from podium.errors import UserError
from podium.recipe import Recipe, from_dict, to_dict


@dataclass(frozen=True)
class RunInfo:
    recipe: Recipe
    data: str
    data_hash: str
    classes: tuple[str, ...]


def claim(run: Path, recipe: Recipe, images: ImageSet) -> None:
    """Makes the directory, or finds that it holds this very run, unfinished."""
    info = RunInfo(recipe, str(images.directory.absolute()), images.content_hash, images.classes)
    if (run / "summary.json").exists():
        raise UserError(f"{run} holds a finished run; choose another --run, or evaluate it with podium eval {run}")
    if (run / "run.json").exists():
        theirs = read(run)
        changed = _difference(to_dict(theirs.recipe), to_dict(recipe))
        if theirs.data_hash != info.data_hash:
            changed.append(f"data {theirs.data} → {info.data}")
        if changed:
            raise UserError(f"{run} holds another run ({', '.join(changed)}); choose another --run")
        return
    try:
        if run.exists() and any(run.iterdir()):
            raise UserError(f"{run} is not empty and holds no run; choose another --run")
        run.mkdir(parents=True, exist_ok=True)
        about = {
            "recipe": to_dict(recipe),
            "data": info.data,
            "data_hash": info.data_hash,
            "classes": info.classes,
        }
        write_atomic(run / "run.json", json.dumps(about, indent=1))
    except OSError as error:
        raise UserError(f"cannot write to {run}: {error.strerror}; choose another --run") from None


def read(run: Path) -> RunInfo:
    try:
        about = json.loads((run / "run.json").read_text())
        return RunInfo(from_dict(about["recipe"]), about["data"], about["data_hash"], tuple(about["classes"]))
    except (OSError, ValueError, KeyError):
        raise UserError(f"{run} holds no run (no readable run.json); give the --run directory of a training") from None


def finish(run: Path, summary: dict[str, Any]) -> None:
    write_atomic(run / "summary.json", json.dumps(summary, indent=1))


def _difference(a: dict[str, Any], b: dict[str, Any], where: str = "") -> list[str]:
    found = []
    for key in sorted({*a, *b}):
        if isinstance(a.get(key), dict) and isinstance(b.get(key), dict):
            found += _difference(a[key], b[key], f"{where}{key}.")
        elif a.get(key) != b.get(key):
            found.append(f"{where}{key} {a.get(key)} → {b.get(key)}")
    return found
