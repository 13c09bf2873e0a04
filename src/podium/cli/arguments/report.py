"""`podium report`: a page about runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from tyro.conf import Positional, arg

from podium.cli.arguments.command import REQUIRED, Command, option
from podium.errors import UserError


@dataclass(frozen=True)
class Report(Command):
    """Write one HTML page about a run, or one that compares several. It opens without a network."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN…", help_behavior_hint=REQUIRED)] = tyro.MISSING
    """Directories of runs. A run that is under way is fine."""
    out: Annotated[Path | None, option("FILE.html", "RUN/report.html, or report.html for several")] = None
    """File to write."""

    does: ClassVar[str] = "podium.cli.report:report"
    needs_device: ClassVar[bool] = False

    def check(self) -> None:
        if not self.runs:
            raise UserError("podium report was given no run; write podium report RUN…")
