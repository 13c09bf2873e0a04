"""The arguments of `podium plan`, apart from what carries them out, so that `--help` imports no JAX."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class PlanOptions:
    recipe: str = "resnet50-32k"
    """The name of a shipped recipe, or a TOML file."""
    topology: str = "v3:32x32"
    """The pod: CHIP:XxY or CHIP:XxYxZ (v2 v3 v4 v5e v5p v6e), or GPUs as CHIP:NODESx8 (v100 a100 h100). Several, with
    commas between them, make a sweep."""
    batch: str = ""
    """A different global batch; several, with commas between them, make a sweep."""
    fit: Literal["", "batch", "pod"] = ""
    """batch: the largest batch that fits the pod. pod: the smallest pod of this chip that trains within --minutes."""
    minutes: float = 10.0
    """The target of --fit pod."""
    check: bool = False
    """Hold the planner against published results."""
    fresh: bool = False
    """With --check: compile every point again (an hour), and keep the result."""
    counted: bool = False
    """Count the step's work instead of compiling it: seconds, not minutes, and rougher."""
    out: Path | None = None
    """Write a sweep as sweep.html, sweep.svg and sweep.json into this directory."""
