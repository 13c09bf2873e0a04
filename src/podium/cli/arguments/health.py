"""`podium doctor`, `podium verify` and `podium verify-resume`: is all well, before a long run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from tyro.conf import Positional, arg

from podium.cli.arguments.command import Command, Flag, OneOfSeveral, Overrides, RecipeName, option
from podium.errors import UserError
from podium.recipe.reading import load_recipe


@dataclass(frozen=True)
class Doctor(OneOfSeveral):
    """Check every host, and all of them together, before a run: green, yellow or red, and what to do."""

    recipe: RecipeName = "demo"
    """Recipe of the run: a shipped one, or a TOML file."""
    data: Annotated[Path | None, option("PATH")] = None
    """Prepared directory of the run. Without it, data, memory and decoding are not checked."""
    run: Path = Path("runs")
    """Where the run will be kept."""
    set: Overrides = ()
    """Change a value of the recipe, as for `podium train`."""
    images_per_second: Annotated[float, arg(metavar="RATE", help_behavior_hint="")] = 0.0
    """Rate that the whole run should reach; the decoders are compared with it."""

    does: ClassVar[str] = "podium.cli.health:doctor"

    def check(self) -> None:
        load_recipe(self.recipe, self.set)

    def exit_code(self, result: Any) -> int:
        return 1 if result["level"] == "red" else 0


@dataclass(frozen=True)
class Verify(Command):
    """Read every byte of a prepared directory or of a run, and name what has changed since it was written."""

    path: Annotated[Positional[Path], arg(metavar="DIR|RUN")] = tyro.MISSING
    """Prepared directory, or directory of a run."""

    does: ClassVar[str] = "podium.cli.verify:verify"
    needs_device: ClassVar[bool] = False

    def exit_code(self, result: Any) -> int:
        return 1 if result["changes"] else 0


@dataclass(frozen=True)
class VerifyResume(Command):
    """Kill a small run again and again, and check that its final weights equal those of a run never stopped."""

    kills: Annotated[int, arg(metavar="N")] = 25
    """Number of times to kill the run."""
    chaos: Flag = False
    """Not only SIGKILL: SIGSTOP, SIGTERM, a full disk, a corrupt checkpoint and a jump of the clock too."""
    seed: Annotated[int | None, option("N", "a new one, which is printed")] = None
    """Seed for what happens when."""

    does: ClassVar[str] = "podium.cli.health:verify"

    def check(self) -> None:
        if self.kills < 1:
            raise UserError(f"--kills {self.kills} must be at least 1")

    def exit_code(self, result: Any) -> int:
        return 0 if result["identical"] and result["lost_steps_max"] <= result["max_lost_steps"] else 1
