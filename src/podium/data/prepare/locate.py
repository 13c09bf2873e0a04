"""Where the images of a run are: the demo's, made on first use; a prepared directory; or any source, prepared into
the user's cache directory first.
"""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from podium.data import prepare
from podium.data.dataset.manifest import MANIFEST, write_manifest
from podium.data.dataset.shards import write_split
from podium.data.prepare import demo
from podium.host.files import reporting
from podium.host.paths import cache_directory

_DEMO_SEED = 0
_DEMO_VERSION = 1  # goes up when the same seed gives other images


def locate(data: str | None, console: Console, options: prepare.PrepareOptions = prepare.FOR_TRAINING) -> Path:
    """The prepared directory for `--data`; None is the demo."""
    if data is None:
        return _demo(console)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        return prepare.prepared(data, cache_directory() / "data", options, say=console.print, progress=show)


def _demo(console: Console) -> Path:
    directory = cache_directory() / "data" / f"demo-{_DEMO_VERSION}-{_DEMO_SEED}"
    if (directory / MANIFEST).exists():
        return directory
    console.print(f"making the demo images in {directory}, once", style="dim", highlight=False, soft_wrap=True)
    splits = {"train": demo.TRAIN, "validation": demo.VALIDATION}
    with reporting(directory, "set XDG_CACHE_HOME to another place"):
        directory.mkdir(parents=True, exist_ok=True)
        with Progress(
            TextColumn("demo images"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        ) as bar:
            task = bar.add_task("", total=sum(map(len, splits.values())))

            def counted(indices: range) -> Iterator[tuple[bytes, int, str]]:
                for image in demo.images(_DEMO_SEED, indices):
                    yield image
                    bar.advance(task)

            shards = {name: write_split(directory, name, counted(r), len(r)) for name, r in splits.items()}
        write_manifest(directory, demo.CLASSES, shards, plan=directory.name)
    return directory
