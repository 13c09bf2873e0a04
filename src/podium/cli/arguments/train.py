"""`podium train`, and `podium launch`, which starts several of it."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from tyro.conf import Positional, arg

from podium.cli.arguments.command import REQUIRED, Command, Flag, OneOfSeveral, Overrides, RecipeName, option
from podium.errors import UserError
from podium.recipe.reading import load_recipe

STARTED = time.monotonic()  # of the process, nearly: --max-minutes counts from here


@dataclass(frozen=True)
class Train(OneOfSeveral):
    """Train a network. Without arguments, train the demo."""

    recipe: RecipeName = "demo"
    """A shipped recipe, or a TOML file."""
    data: Annotated[str | None, option("PATH", "the demo's images")] = None
    """Images to train on: a prepared directory, or any source that `podium prepare` takes."""
    run: Annotated[Path | None, option("PATH", "runs/RECIPE-TIME")] = None
    """Directory of the run. An unfinished run found there resumes; --run alone is enough for that."""
    weights: Annotated[str | None, option("FILE|RUN", "random numbers")] = None
    """Start from these weights: a safetensors file with torchvision's or timm's names, or another run."""
    set: Overrides = ()
    """Change a value of the recipe, such as torus=2x4 or optimizer.learning_rate=0.1."""
    from_step: Annotated[int | None, option("STEP")] = None
    """Go back to this checkpoint of --run and drop later ones. From there --set may change the recipe."""
    max_minutes: Annotated[float | None, option("MINUTES")] = None
    """Save and stop within this many minutes, with exit code 75. The same command resumes."""
    track: Literal["none", "wandb", "mlflow"] = "none"
    """Also send the metrics to Weights & Biases or MLflow; each needs the extra of its name."""
    dry_run: Flag = False
    """Say what would happen, and do nothing."""
    stall_minutes: Annotated[float, arg(metavar="MINUTES")] = 10.0
    """Stop the process if nothing has moved for this long."""

    does: ClassVar[str] = "podium.cli.train:train"
    computes: ClassVar[bool] = True

    @property
    def resumes_alone(self) -> bool:
        """Whether all but --run and --set is left to what the run's directory says."""
        return self.run is not None and self.recipe == "demo" and self.data is None and (self.run / "run.json").exists()

    def check(self) -> None:
        recipe = None if self.resumes_alone else load_recipe(self.recipe, self.set)
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise UserError(f"--max-minutes {self.max_minutes:g} must be greater than 0")
        if not self.stall_minutes > 0:
            raise UserError(f"--stall-minutes {self.stall_minutes:g} must be greater than 0; leave it out for 10")
        if recipe and self.data is None and self.recipe != "demo":
            raise UserError(f"recipe {recipe.name} needs images: give --data DIR (podium prepare makes one)")


@dataclass(frozen=True)
class Launch(Command):
    """Train with several processes, here or one on each of several hosts: podium launch -n 4 -- train …"""

    command: Annotated[Positional[tuple[str, ...]], arg(metavar="COMMAND…", help_behavior_hint=REQUIRED)] = tyro.MISSING
    """-- train, followed by its arguments."""
    n: Annotated[int, arg(aliases=["-n"], metavar="N")] = 2
    """Number of processes on this machine."""
    hosts: Annotated[str | None, option("A,B,…", "this machine")] = None
    """Hosts, each with one process that drives all its devices. They must reach each other by these names."""
    min_processes: Annotated[int | None, option("N", "all")] = None
    """With --hosts: continue on the hosts that are left as long as they are so many, and on all when they are back."""
    shell: Annotated[str, arg(metavar="COMMAND")] = "ssh -o BatchMode=yes -o ConnectTimeout=5"
    """With --hosts: what starts a command on a host; the host and the command are added."""
    restarts: Annotated[int, arg(metavar="N")] = 0
    """Number of times to start again, from the last checkpoint, after a process was lost."""

    does: ClassVar[str] = "podium.cli.train:launch"
    prints_json: ClassVar[bool] = True

    def check(self) -> None:
        if self.min_processes is not None and self.hosts is None:
            raise UserError("--min-processes needs --hosts: a process of this machine comes back with the next start")

    def exit_code(self, result: Any) -> int:
        return int(result)
