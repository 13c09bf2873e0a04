"""Which checkpoint of a run is its best: the one with the highest accuracy, which best.json beside them names."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from podium.host.files import reporting
from podium.host.sealed import unseal, write_sealed

_FILE = "best.json"


def best_step(directory: Path, kept: Collection[int]) -> int | None:
    """The best of the kept steps, as far as `note_accuracy` was told."""
    step = _read(directory).get("step")
    return step if step in kept else None


def note_accuracy(directory: Path, kept: Collection[int], *, step: int, top1: float) -> None:
    """Remembers `step` if it is as good as the best before it, or if that one is no longer kept."""
    before = _read(directory)
    if before.get("step") not in kept or top1 >= before["top1"]:
        with reporting(directory / _FILE):
            write_sealed(directory / _FILE, {"step": step, "top1": top1})


def _read(directory: Path) -> dict[str, Any]:
    try:
        return unseal((directory / _FILE).read_bytes())
    except (OSError, ValueError):
        return {}
