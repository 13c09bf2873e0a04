"""What `podium train` and `podium launch` do."""

import sys
import time
from dataclasses import asdict
from functools import partial
from typing import Any

from podium import models
from podium.cli import several
from podium.cli.arguments.train import STARTED, Launch, Train
from podium.processes import launch as processes
from podium.recipe.reading import load_recipe
from podium.report.terminal import Terminal
from podium.train.run import Limits, train_recipe


def train(command: Train) -> dict[str, Any]:
    recipe = load_recipe(command.recipe, command.set)
    models.check(recipe.model, recipe.data.image_size)
    several.join(command)
    terminal = Terminal(quiet=command.json or not several.is_first())
    minutes_so_far = (time.monotonic() - STARTED) / 60
    max_minutes = None if command.max_minutes is None else command.max_minutes - minutes_so_far
    summary = train_recipe(
        recipe,
        command.data,
        command.run,
        listener=terminal,
        from_step=command.from_step,
        limits=Limits(max_minutes, command.stall_minutes),
    )
    return asdict(summary)


def launch(command: Launch) -> int:
    arguments = (*command.command, "--json") if command.json else command.command
    say = partial(print, "podium:", file=sys.stderr, flush=True)
    return processes.launch(arguments, command.n, restarts=command.restarts, say=say)
