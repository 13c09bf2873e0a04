"""The command line: arguments → recipe → one function call per command. Commands import what they need when they run,
so that `--help` and a mistyped recipe answer at once. A user's mistake ends in one line and exit code 2; `--debug`
shows the traceback.
"""

import json
import logging
import os
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import tyro
from tyro.conf import Positional, UseAppendAction, arg, subcommand

from podium.cli.bench import Bench
from podium.cli.command import Command
from podium.cli.plan_options import PlanOptions
from podium.data.prepare import FOR_EVALUATION, PrepareOptions
from podium.errors import EXIT_MISTAKE, EXIT_STOPPED, Stopped, UserError

_BEGAN = time.monotonic()  # of the process, nearly: --max-minutes counts from here
_PREPARE, _PLAN = PrepareOptions(), PlanOptions()


@dataclass(frozen=True)
class _OneOfSeveral(Command):
    coordinator: str | None = None
    """HOST:PORT of process 0, for a run of several processes. Found by itself on Slurm, Open MPI and TPU VMs."""
    processes: int | None = None
    """How many processes the run has."""
    process: int | None = None
    """Which of them this one is, from 0."""

    def join(self) -> None:
        from podium.processes.join import Cluster, join

        join(Cluster(self.coordinator, self.processes, self.process))


@dataclass(frozen=True)
class Train(_OneOfSeveral):
    """Train a network; without arguments, the demo."""

    recipe: str = "demo"
    """The name of a shipped recipe, or a TOML file."""
    data: str | None = None
    """A prepared directory, or any source that `podium prepare` takes. Default: the demo's images."""
    run: Path | None = None
    """Where to keep the run; an unfinished run there goes on. Default: runs/RECIPE-TIME."""
    set: UseAppendAction[tuple[str, ...]] = ()
    """KEY=VALUE: change a value of the recipe, such as torus=2x4 or optimizer.learning_rate=0.1."""
    from_step: int | None = None
    """Go back to this checkpoint of --run and drop the later ones; --set may then change how training goes on."""
    max_minutes: float | None = None
    """Save and end within so many minutes, with exit code 75; the same command goes on."""
    stall_minutes: float = 10.0
    """End the process when nothing has moved for so long."""

    def __call__(self) -> dict[str, Any]:
        from podium.recipe.reading import load_recipe

        chosen = load_recipe(self.recipe, self.set)
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise UserError(f"--max-minutes {self.max_minutes:g} must be greater than 0")
        if not self.stall_minutes > 0:
            raise UserError(f"--stall-minutes {self.stall_minutes:g} must be greater than 0; leave it out for 10")
        if self.data is None and self.recipe != "demo":
            raise UserError(f"recipe {chosen.name} needs images: give --data DIR (podium prepare makes one)")
        _start_jax()
        from podium import models
        from podium.processes.join import is_first
        from podium.report.terminal import Terminal
        from podium.train.run import Limits, train_recipe

        models.check(chosen.model, chosen.data.image_size)
        self.join()
        terminal = Terminal(quiet=self.json or not is_first())
        minutes = None if self.max_minutes is None else self.max_minutes - (time.monotonic() - _BEGAN) / 60
        limits = Limits(minutes, self.stall_minutes)
        summary = train_recipe(chosen, self.data, self.run, listener=terminal, from_step=self.from_step, limits=limits)
        return asdict(summary)


@dataclass(frozen=True)
class Launch(Command):
    """Train with several processes on this machine: podium launch -n 4 -- train …"""

    command: Annotated[Positional[tuple[str, ...]], arg(metavar="COMMAND…")] = tyro.MISSING
    """-- train, and its arguments."""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 2
    """How many processes."""
    restarts: int = 0
    """How often to start them again, from the last checkpoint, when one was lost."""

    def __call__(self) -> int:
        from podium.processes.launch import launch

        arguments = (*self.command, "--json") if self.json else self.command
        say = partial(print, "podium:", file=sys.stderr, flush=True)
        return launch(arguments, self.n, restarts=self.restarts, say=say)

    def exit_code(self, result: Any) -> int:
        return int(result)


@dataclass(frozen=True)
class Eval(Command):
    """Evaluate a run's newest checkpoint: every validation image once."""

    run: Annotated[Positional[Path], arg(metavar="RUN")] = tyro.MISSING
    """The directory of a run."""
    data: str | None = None
    """Other validation images of the same classes: all, of a source without splits. Default: those of the run."""

    def __call__(self) -> dict[str, Any]:
        _start_jax()
        from podium.data.prepare.locate import locate
        from podium.report.terminal import Terminal
        from podium.train.trained_model import open_run

        terminal = Terminal(quiet=self.json)
        data = None
        if self.data:
            data = locate(self.data, FOR_EVALUATION, say=terminal.note, progress=terminal.preparing)
        evaluation = open_run(self.run).evaluate(data)
        terminal.evaluated(evaluation)
        return {"accuracy": evaluation.top1, **asdict(evaluation), "run": str(self.run)}


@dataclass(frozen=True)
class Predict(Command):
    """Classify images with a run's newest checkpoint."""

    run: Annotated[Positional[Path], arg(metavar="RUN")] = tyro.MISSING
    """The directory of a run."""
    images: Annotated[Positional[tuple[Path, ...]], arg(metavar="IMAGE…")] = tyro.MISSING
    """Image files."""

    def __call__(self) -> list[dict[str, Any]]:
        if not self.images:
            raise UserError("podium predict was given no image; write podium predict RUN IMAGE…")
        _start_jax()
        from podium.train.trained_model import open_run

        trained = open_run(self.run)
        results = []
        for file, probabilities in zip(self.images, trained.predict(self.images), strict=True):
            best = probabilities.argsort()[::-1][:5]
            guesses = [{"class": trained.info.classes[i], "probability": float(probabilities[i])} for i in best]
            results.append({"image": str(file), "guesses": guesses})
            if not self.json:
                print(f"{file}: " + ", ".join(f"{g['class']} {g['probability']:.1%}" for g in guesses))
        return results


@dataclass(frozen=True)
class Doctor(_OneOfSeveral):
    """Look at every host, and at all of them together, before a launch: green, yellow or red, and what to do."""

    recipe: str = "demo"
    """The recipe of the run: a shipped name, or a TOML file."""
    data: Path | None = None
    """Its prepared directory. Without it nothing is said about data, memory and decoding."""
    run: Path = Path("runs")
    """Where the run will be kept."""
    set: UseAppendAction[tuple[str, ...]] = ()
    """KEY=VALUE: as for train."""
    images_per_second: float = 0.0
    """What the whole run should reach, to compare the decoders with."""

    def __call__(self) -> dict[str, Any]:
        from podium.recipe.reading import load_recipe

        chosen = load_recipe(self.recipe, self.set)
        _start_jax()
        from rich.console import Console

        from podium.doctor.doctor import examine
        from podium.doctor.show import show
        from podium.processes.join import is_first

        self.join()
        console = Console(stderr=self.json, highlight=False, markup=False, quiet=not is_first())
        with console.status("") as status:
            need = self.images_per_second
            report = examine(chosen, self.data, self.run, need_images_per_second=need, say=status.update)
        show(report, console)
        return asdict(report)

    def exit_code(self, result: Any) -> int:
        return 1 if result["level"] == "red" else 0


@dataclass(frozen=True)
class VerifyResume(Command):
    """Kill a small run with SIGKILL again and again; its weights must be those of a run that was never stopped."""

    kills: int = 25
    """How often."""
    seed: int = 0
    """Of the moments."""

    def __call__(self) -> dict[str, Any]:
        from podium.bench.verify_resume import verify_resume

        if self.kills < 1:
            raise UserError(f"--kills {self.kills} must be at least 1")
        say = partial(print, file=sys.stderr if self.json else sys.stdout, flush=True)
        verified = verify_resume(self.kills, self.seed, say)
        say("identical weights" if verified.identical else "THE WEIGHTS DIFFER", end="; ")
        say(f"at most {verified.lost_steps_max} steps lost, {verified.max_lost_steps} allowed")
        return asdict(verified)

    def exit_code(self, result: Any) -> int:
        return 0 if result["identical"] and result["lost_steps_max"] <= result["max_lost_steps"] else 1


@dataclass(frozen=True)
class Prepare(Command):
    """Turn images (a folder, tar, WebDataset, TFRecords, Parquet; local, gs:// or s3://) into shards."""

    source: Annotated[Positional[str], arg(metavar="SOURCE")] = tyro.MISSING
    """Where the images are."""
    out: Annotated[Positional[str], arg(metavar="OUT")] = tyro.MISSING
    """The directory to make."""
    preview: Path | None = None
    """Also write a picture (PNG) of one training batch as the network sees it."""
    recipe: str = "resnet50-256"
    """The recipe whose crops and colours the preview shows."""
    options: Annotated[PrepareOptions, tyro.conf.arg(name="")] = _PREPARE

    def __call__(self) -> dict[str, Any]:
        from rich.console import Console

        from podium.data import prepare

        console = Console(file=sys.stderr if self.json else sys.stdout, markup=False)
        report = prepare.run(self.source, self.out, self.options, console)
        if self.preview:
            from podium.preview import preview
            from podium.recipe.reading import load_recipe

            preview(Path(self.out), load_recipe(self.recipe), self.preview)
            console.print(f"a batch as the network sees it: {self.preview}", highlight=False, soft_wrap=True)
        return asdict(report)


@dataclass(frozen=True)
class Plan(Command):
    """Plan a run on a pod that is not at hand: does it fit, how fast, how long, what limits it."""

    set: UseAppendAction[tuple[str, ...]] = ()
    """KEY=VALUE: change a value of the recipe."""
    options: Annotated[PlanOptions, tyro.conf.arg(name="")] = _PLAN

    def __call__(self) -> dict[str, Any]:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # a plan needs no device, not even where there is one
        from rich.console import Console

        from podium.cli import plan as command

        return command.run(self.options, self.set, Console(stderr=self.json))


Commands = (
    Annotated[Train, subcommand("train")]
    | Annotated[Launch, subcommand("launch")]
    | Annotated[Doctor, subcommand("doctor")]
    | Annotated[Eval, subcommand("eval")]
    | Annotated[Predict, subcommand("predict")]
    | Annotated[VerifyResume, subcommand("verify-resume")]
    | Annotated[Prepare, subcommand("prepare")]
    | Annotated[Plan, subcommand("plan")]
    | Annotated[Bench, subcommand("bench")]
)


def main() -> None:
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        chosen = tyro.cli(
            Commands,
            prog="podium",
            description="Train image classifiers at supercomputer scale.",
            config=(
                tyro.conf.OmitSubcommandPrefixes,
                tyro.conf.FlagCreatePairsOff,
            ),
        )
        command = chosen.what if isinstance(chosen, Bench) else chosen
        result = command()
    except UserError as error:
        if "--debug" in sys.argv:  # options check themselves, so there may be no command to ask
            raise
        print(f"podium: {error}", file=sys.stderr)
        _leave(EXIT_MISTAKE)
    except Stopped as stopped:
        if _speaks():
            print(f"podium: {stopped}", file=sys.stderr)
        if command.json and _speaks():
            print(json.dumps({"stopped": stopped.reason, "step": stopped.step, "run": stopped.run}))
        sys.exit(EXIT_STOPPED)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os._exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
    if command.json and _speaks() and not isinstance(command, Launch):  # there the first process has printed it
        print(json.dumps(result))
    sys.exit(command.exit_code(result))


def _speaks() -> bool:
    """Of several processes one prints the result; only commands that start JAX have several."""
    if "jax" not in sys.modules:
        return True
    from podium.processes.join import is_first

    return is_first()


def _leave(code: int) -> NoReturn:
    """One of several processes leaves at once: an orderly end would wait for the others, and they for this one."""
    if "jax" in sys.modules:
        from podium.processes.join import process_count

        if process_count() > 1:
            from podium.processes import agree

            sys.stderr.flush()
            agree.leave()
            os._exit(code)
    sys.exit(code)


def _start_jax() -> None:
    """Settings that must stand before JAX's first use of a device."""
    from podium.host import compile_cache
    from podium.mesh import pass_over_libtpu

    compile_cache.enable()
    pass_over_libtpu()
