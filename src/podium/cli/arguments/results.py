"""`podium eval` and `podium predict`: what a trained run can do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from tyro.conf import Positional, arg

from podium.cli.arguments.command import REQUIRED, Command, RawWeights, option
from podium.errors import EXIT_SOME_FAILED, UserError

_OTHER_IMAGES = (
    "Evaluate on other images, of all or some of the run's classes. If the source has no train/val folders, all of its "
    "images are used."
)


Checkpoint = Annotated[str, arg(metavar="newest|best|STEP")]


def which_checkpoint(given: str) -> Literal["newest", "best"] | int:
    if given == "newest":
        return "newest"
    if given == "best":
        return "best"
    if given.isdigit():
        return int(given)
    raise UserError(f"--checkpoint {given!r} must be newest, best or the step of a checkpoint")


@dataclass(frozen=True)
class Eval(Command):
    """Evaluate a run on every validation image: accuracy, by class too, and what it takes for what."""

    run: Annotated[Positional[Path], arg(metavar="RUN")] = tyro.MISSING
    """Directory of the run."""
    data: Annotated[str | None, option("PATH", "the run's validation images", help=_OTHER_IMAGES)] = None
    checkpoint: Checkpoint = "newest"
    """Which checkpoint. The best is the one with the highest accuracy; it is kept beside the newest."""
    raw_weights: RawWeights = False
    size: Annotated[int | None, option("PX", "the recipe's")] = None
    """Side of the images that the network is given, in pixels."""
    out: Annotated[Path | None, option("DIR", "RUN/evaluation")] = None
    """Where to write accuracy by class, confusion matrix, calibration and a sheet of the surest mistakes."""

    does: ClassVar[str] = "podium.cli.results:evaluate"
    computes: ClassVar[bool] = True

    def check(self) -> None:
        which_checkpoint(self.checkpoint)
        if self.size is not None and self.size < 1:
            raise UserError(f"--size {self.size} must be 1 or more")


@dataclass(frozen=True)
class Predict(Command):
    """Classify images. Files that cannot be used are named and left out; the exit code is then 1."""

    run: Annotated[Positional[Path], arg(metavar="RUN")] = tyro.MISSING
    """Directory of the run."""
    images: Annotated[Positional[tuple[str, ...]], arg(metavar="IMAGE…", help_behavior_hint=REQUIRED)] = tyro.MISSING
    """Image files, folders of them, or patterns such as 'photos/**/*.jpg'."""
    top: Annotated[int, arg(metavar="K")] = 5
    """Number of classes to name for each image."""
    csv: Annotated[Path | None, option("FILE")] = None
    """Write the predictions to a CSV file."""
    parquet: Annotated[Path | None, option("FILE")] = None
    """Write the predictions to a Parquet file."""
    checkpoint: Checkpoint = "newest"
    """Which checkpoint. The best is the one with the highest accuracy; it is kept beside the newest."""
    raw_weights: RawWeights = False

    does: ClassVar[str] = "podium.cli.results:predict"
    computes: ClassVar[bool] = True

    def check(self) -> None:
        if not self.images:
            raise UserError("podium predict was given no image; write podium predict RUN IMAGE…")
        if self.top < 1:
            raise UserError(f"--top {self.top} must be at least 1")
        which_checkpoint(self.checkpoint)

    def exit_code(self, result: Any) -> int:
        return EXIT_SOME_FAILED if result["failed"] else 0
