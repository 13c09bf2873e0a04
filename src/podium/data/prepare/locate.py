"""Where the images of a run are: the demo's, made on first use; a prepared directory; or any source, prepared into
the user's cache directory first.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from podium.data import prepare
from podium.data.dataset.manifest import MANIFEST, write_manifest
from podium.data.dataset.shards import write_split
from podium.data.prepare import demo
from podium.data.prepare_options import FOR_TRAINING, PrepareOptions
from podium.host.files import reporting
from podium.host.paths import cache_directory

_DEMO_SEED = 0
_DEMO_VERSION = 1  # goes up when the same seed gives other images


def locate(
    data: str | os.PathLike[str] | None,
    options: PrepareOptions = FOR_TRAINING,
    *,
    say: Callable[[str], None] = lambda line: None,
    progress: prepare.Progress = lambda stage, done, total: None,
) -> Path:
    """The prepared directory for `data`: itself, or one that is made now; None stands for the demo's."""
    cache = cache_directory() / "data"
    if data is None:
        return _demo(cache / f"demo-{_DEMO_VERSION}-{_DEMO_SEED}", say, progress)
    return prepare.prepared(data, cache, options, say=say, progress=progress)


def training_directory(data: str | os.PathLike[str]) -> prepare.Place:
    """Where `podium train --data` has, or would have, the prepared form of `data`; nothing is made."""
    return prepare.where(data, cache_directory() / "data", FOR_TRAINING)


def _demo(directory: Path, say: Callable[[str], None], progress: prepare.Progress) -> Path:
    if (directory / MANIFEST).exists():
        return directory
    say(f"making the demo images in {directory}, once")
    splits = {"train": demo.TRAIN, "validation": demo.VALIDATION}
    total, done = sum(map(len, splits.values())), 0

    def counted(indices: range) -> Iterator[tuple[bytes, int, str]]:
        nonlocal done
        for image in demo.images(_DEMO_SEED, indices):
            done += 1
            progress("demo images", done, total)
            yield image

    with reporting(directory, "set XDG_CACHE_HOME to a different place"):
        directory.mkdir(parents=True, exist_ok=True)
        shards = {name: write_split(directory, name, counted(r), count=len(r)) for name, r in splits.items()}
        write_manifest(directory, demo.CLASSES, shards, plan=directory.name)
    return directory
