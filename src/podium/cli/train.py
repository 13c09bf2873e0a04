"""What `podium train` and `podium launch` do."""

import shlex
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from podium import models
from podium.cli import several
from podium.cli.arguments.train import STARTED, Launch, Train
from podium.cli.dry_run import describe
from podium.processes import launch as processes
from podium.processes.hosts import Hosts
from podium.recipe.reading import load_recipe, to_dict, with_overrides
from podium.recipe.schema import Recipe
from podium.report import events
from podium.report.run_page import flat
from podium.report.terminal import Terminal
from podium.report.trackers import build_tracker
from podium.train import run_directory
from podium.train.run import Limits, new_run_name, train_recipe


def train(command: Train) -> dict[str, Any]:
    recipe, data = _what(command)
    models.check(recipe.model, *recipe.data.train_sizes, recipe.data.evaluation_size)
    if command.dry_run:
        told = describe(recipe, data, command.run, weights=command.weights, from_step=command.from_step)
        for line in told.values() if not command.json else ():
            print(line)
        return told
    several.join(command)
    terminal = Terminal(quiet=command.json or not several.is_first())
    run = command.run or Path(new_run_name(recipe))
    minutes_so_far = (time.monotonic() - STARTED) / 60
    max_minutes = None if command.max_minutes is None else command.max_minutes - minutes_so_far
    summary = train_recipe(
        recipe,
        data,
        run,
        weights=command.weights,
        listener=events.Broadcast(terminal, *_trackers(command, recipe, run)),
        limits=Limits(max_minutes, command.stall_minutes, command.from_step),
    )
    return asdict(summary)


def _trackers(command: Train, recipe: Recipe, run: Path) -> list[events.Listener]:
    if command.track == "none" or not several.is_first():
        return []
    return [build_tracker(command.track, run, flat(to_dict(recipe)))]


def _what(command: Train) -> tuple[Recipe, str | None]:
    """The recipe and the data that are meant: those given, or those of the run that is to resume."""
    if not command.resumes_alone:
        return load_recipe(command.recipe, command.set), command.data
    info = run_directory.read(Path(str(command.run)))
    return with_overrides(info.recipe, command.set), info.data


def launch(command: Launch) -> int:
    arguments = (*command.command, "--json") if command.json else command.command
    say, hosts = partial(print, "podium:", file=sys.stderr, flush=True), None
    if command.hosts is not None:
        names = tuple(name for name in command.hosts.split(",") if name)
        hosts = Hosts(names, tuple(shlex.split(command.shell)), command.min_processes or len(names))
    return processes.launch(arguments, command.n, restarts=command.restarts, say=say, hosts=hosts)
