"""What `podium prepare` does."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from podium.cli.arguments.prepare import Prepare
from podium.data import prepare as preparation
from podium.recipe.reading import load_recipe
from podium.report.terminal import Terminal


def prepare(command: Prepare) -> dict[str, Any]:
    console = Console(stderr=command.json, markup=False)
    report = show_preparation(command, console)
    if command.preview:
        from podium.preview import preview  # brings JAX: 0.6 s to load, and nothing else here needs it

        preview(Path(command.out), load_recipe(command.recipe), command.preview)
        console.print(f"a batch as the network sees it: {command.preview}", highlight=False, soft_wrap=True)
    return asdict(report)


def show_preparation(command: Prepare, console: Console) -> preparation.Report:
    """Prepares, with a progress bar and a summary."""
    say = partial(console.print, highlight=False, soft_wrap=True)
    progress = Terminal(console=console).preparing
    report = preparation.prepare(command.source, command.out, command.options, progress=progress, say=say)
    for line in preparation.summary(report):
        say(line)
    return report
