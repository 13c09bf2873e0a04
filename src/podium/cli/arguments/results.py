"""`podium eval` and `podium predict`: what a trained run can do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from tyro.conf import Positional, arg

from podium.cli.arguments.command import REQUIRED, Command, option
from podium.errors import UserError

_OTHER_IMAGES = (
    "Evaluate on other images with the same classes. If the source has no train/val folders, all of its images are "
    "used."
)


@dataclass(frozen=True)
class Eval(Command):
    """Evaluate the newest checkpoint of a run on every validation image."""

    run: Annotated[Positional[Path], arg(metavar="RUN")] = tyro.MISSING
    """Directory of the run."""
    data: Annotated[str | None, option("PATH", "the run's validation images", help=_OTHER_IMAGES)] = None

    does: ClassVar[str] = "podium.cli.results:evaluate"
    computes: ClassVar[bool] = True


@dataclass(frozen=True)
class Predict(Command):
    """Classify images with the newest checkpoint of a run."""

    run: Annotated[Positional[Path], arg(metavar="RUN")] = tyro.MISSING
    """Directory of the run."""
    images: Annotated[Positional[tuple[Path, ...]], arg(metavar="IMAGE…", help_behavior_hint=REQUIRED)] = tyro.MISSING
    """Image files."""

    does: ClassVar[str] = "podium.cli.results:predict"

    def check(self) -> None:
        if not self.images:
            raise UserError("podium predict was given no image; write podium predict RUN IMAGE…")
