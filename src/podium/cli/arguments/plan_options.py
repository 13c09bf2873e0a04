"""The arguments of `podium plan`, apart from what carries them out, so that `--help` imports no JAX."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from podium.cli.arguments.command import Flag, RecipeName, option


@dataclass(frozen=True)
class PlanOptions:
    recipe: RecipeName = "resnet50-32k"
    """A shipped recipe, or a TOML file."""
    topology: Annotated[str, arg(metavar="CHIP:XxY,…")] = "v3:32x32"
    """Pod: XxY of v2 v3 v5e v6e, XxYxZ of v4 v5p, or NODESx8 of v100 a100 h100 h200 b200. Several make a sweep."""
    batch: Annotated[str, option("N,…", "the recipe's")] = ""
    """Global batch. Several make a sweep."""
    fit: Annotated[Literal["", "batch", "pod"], option("batch|pod")] = ""
    """batch: find the largest batch that fits the pod. pod: the smallest pod that trains within --minutes."""
    minutes: Annotated[float, arg(metavar="MINUTES")] = 10.0
    """Target of --fit pod."""
    check: Flag = False
    """Compare the planner with published results."""
    fresh: Flag = False
    """With --check: compile every point again and keep the result. Takes an hour."""
    counted: Flag = False
    """Count the step's work instead of compiling it: takes seconds instead of minutes, and is rougher."""
    out: Annotated[Path | None, option("DIR")] = None
    """Directory to write a sweep to, as sweep.html, sweep.svg and sweep.json."""
