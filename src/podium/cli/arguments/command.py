"""What every command of the command line is: its arguments, and what it says of itself. What it does is a function in a
module of its own, loaded when the command runs (`does`), so that `--help` and a mistyped recipe answer at once, without
JAX. That is the only reason why anything here is imported late.
"""

import importlib
import os
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tyro.conf import UseAppendAction, arg


def option(metavar: str, default: str = "", help: str | None = None) -> Any:
    """An option that may be left out: what stands for its value in the help, and what holds without it."""
    return arg(metavar=metavar, help=help, help_behavior_hint=f"(default: {default})" if default else "")


REQUIRED = "(required)"
"""The hint of several positional arguments, of which tyro would say that their default is none."""
Flag = Annotated[bool, arg(help_behavior_hint="")]
RawWeights = Annotated[
    bool,
    arg(help="Of a run that averages its weights (average_decay), take the weights themselves.", help_behavior_hint=""),
]
RecipeName = Annotated[str, arg(metavar="NAME|FILE")]
Overrides = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY=VALUE")]


@dataclass(frozen=True)
class Command:
    json: Flag = False
    """Print the result as one JSON object, on the last line of stdout."""
    debug: Flag = False
    """Show the full traceback of an error."""

    does: ClassVar[str]
    """MODULE:FUNCTION that carries the command out; it takes the command and returns JSON types."""
    computes: ClassVar[bool] = False
    """Whether it trains or evaluates in this process: then memory is kept from the first thread on (`host.malloc`)."""
    needs_device: ClassVar[bool] = True
    """Whether JAX should look for accelerators: a plan needs none, not even where there is one."""
    prints_json: ClassVar[bool] = False
    """Whether a process that it starts has printed the JSON already."""

    def check(self) -> None:
        """Finds mistakes that can be told at once, before `does` is loaded."""

    def carry_out(self) -> Any:
        self.check()
        if not self.needs_device:
            os.environ.setdefault("JAX_PLATFORMS", "cpu")  # JAX reads it when it is imported
        module, _, function = self.does.partition(":")
        return getattr(importlib.import_module(module), function)(self)

    def exit_code(self, result: Any) -> int:
        return 0


@dataclass(frozen=True)
class OneOfSeveral(Command):
    """A command that may be one process of several."""

    coordinator: Annotated[str | None, option("HOST:PORT")] = None
    """Address of process 0, if the run has several. Not needed on Slurm, Open MPI, Kubernetes and TPU VMs."""
    processes: Annotated[int | None, option("N")] = None
    """Number of processes in the run."""
    process: Annotated[int | None, option("K")] = None
    """Number of this process, counted from 0."""
