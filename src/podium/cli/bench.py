"""`podium bench …`: one command for each thing that is measured. As in `podium.cli`, they import what they need
when they run.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, subcommand

from podium.cli.command import Command
from podium.errors import UserError


@dataclass(frozen=True)
class BenchStep(Command):
    """A training step beside PyTorch's: the same network, batch and cores, in turns."""

    cases: tuple[str, ...] = ("cifar", "resnet50")
    """cifar: the network of recipe cifar10, 32 px, batch 128; resnet50: 224 px, batch 16; cifar-narrow: 32 channels."""
    rounds: int = 7
    """How often the two take turns."""

    def __call__(self) -> dict[str, Any]:
        from rich.console import Console
        from rich.table import Table

        from podium.bench import step

        result = step.run(self.cases, self.rounds)
        table = Table("network", "Podium images/s", "PyTorch images/s", "ratio (median, spread)")
        for name, r in result["cases"].items():
            ratio = r["ratio"]
            table.add_row(
                name,
                f"{r['podium']['median']:.1f}",
                f"{r['pytorch']['median']:.1f}",
                f"{ratio['median']:.2f} ({ratio['least']:.2f}–{ratio['most']:.2f})",
            )
        Console(stderr=self.json).print(table)
        return result


@dataclass(frozen=True)
class BenchUpdate(Command):
    """The demo's step on simulated chips: each updating all weights, or its share of them, in turns."""

    torus: str = "4x4"
    """ROWSxCOLS of simulated chips."""
    rounds: int = 9
    """How often they take turns."""

    def __call__(self) -> dict[str, Any]:
        from podium.bench import update

        result = update.run(self.torus, self.rounds)
        for optimizer, ratio in result["sharded_to_replicated"].items():
            print(
                f"{result['torus']}, {optimizer}: sharded at {ratio['median']:.2f} times the rate of replicated "
                f"({ratio['least']:.2f}–{ratio['most']:.2f})",
                file=sys.stderr if self.json else sys.stdout,
            )
        return result


@dataclass(frozen=True)
class BenchInput(Command):
    """Images per second into a batch, beside tf.data, DALI and Pillow, on the same files and crops."""

    data: str | None = None
    """A prepared directory, or any source that `podium prepare` takes. Default: the demo's images."""
    threads: tuple[int, ...] = (1, 2)
    """Thread counts to measure."""
    rounds: int = 5
    """How often they take turns."""
    memory_images: int = 0
    """Then also watch the loader's memory over so many images."""

    def __call__(self) -> dict[str, Any]:
        from rich.console import Console

        from podium.bench import input as bench_input

        console = Console(stderr=self.json, markup=False)
        result = bench_input.run(self.data, self.threads, self.rounds, memory_images=self.memory_images)
        bench_input.show(result, console)
        return result


@dataclass(frozen=True)
class BenchAllreduce(Command):
    """Gradient summation between processes: XLA's, a ring and the 2-D torus algorithm, in turns; sums are checked."""

    torus: str = "2x2"
    """ROWSxCOLS of hosts, each a process of its own; ROWSxCOLSxLANES to say how many devices a host has."""
    links: str = "shared"
    """shared: plain loopback. torus: network namespaces joined in a torus by rate-limited links; needs root."""
    rate: str = "200mbit"
    """Of each link, for --links torus."""
    sizes: tuple[int, ...] = ()
    """Bytes to sum. Default: 64 KB to ResNet-50's 102 MB of gradients."""
    repeats: int = 5
    """How often they take turns at each size."""

    def __call__(self) -> list[dict[str, Any]]:
        from podium.bench import allreduce
        from podium.recipe.torus import parse_torus

        def show(measured: allreduce.Measured) -> None:
            times = ", ".join(f"{name} {seconds:.4f} s" for name, seconds in measured.seconds.items())
            bound = f", bound {measured.bound_seconds:.4f} s" if measured.bound_seconds else ""
            print(f"{measured.bytes:>11,} bytes: {times}{bound}", file=sys.stderr if self.json else sys.stdout)

        torus = parse_torus(self.torus)
        if self.torus.count("x") == 1:
            torus = torus._replace(lanes=allreduce.LANES)
        sizes = self.sizes or allreduce.SIZES
        measured = allreduce.bench_allreduce(
            torus, self.links, rate=self.rate, sizes_bytes=sizes, repeats=self.repeats, report=show
        )
        return [m.to_json() for m in measured]


@dataclass(frozen=True)
class BenchAccuracy(Command):
    """Train rows of docs/accuracy.md again, and redraw its tables and plots; without arguments, list the rows."""

    rows: Positional[tuple[str, ...]] = ()
    """Names of rows."""
    data: str | None = None
    """CIFAR-10: a prepared directory, or any source that `podium prepare` takes."""
    seeds: tuple[int, ...] = ()
    """Instead of the rows' own."""
    results: Path = Path("results/accuracy")
    """Where the results are kept, a file a row."""
    runs: Path = Path("runs/accuracy")
    """Where the runs are kept; an unfinished one goes on, a finished one is read."""
    page: Path | None = None
    """Redraw the tables of this page, and the plots beside it, from the results."""

    def __call__(self) -> list[dict[str, Any]]:
        from rich.console import Console

        from podium.bench import accuracy, accuracy_page
        from podium.data.prepare.locate import locate
        from podium.report.terminal import Terminal

        console = Console(stderr=self.json, highlight=False, markup=False, soft_wrap=True)
        if not self.rows and not self.page:
            for name in accuracy.ROWS:
                console.print(name)
        written = []
        if self.rows:
            if self.data is None:
                raise UserError("podium bench accuracy needs CIFAR-10: give --data DIR (podium prepare makes one)")
            data = locate(self.data, say=console.print, progress=Terminal(quiet=self.json).preparing)
            written = accuracy.run(self.rows, data, self.results, runs=self.runs, seeds=self.seeds, say=console.print)
        if self.page:
            accuracy_page.redraw(self.page, self.results)
        return written


@dataclass(frozen=True)
class Bench:
    """Measure this machine beside its peers, in turns."""

    what: (
        Annotated[BenchStep, subcommand("step")]
        | Annotated[BenchInput, subcommand("input")]
        | Annotated[BenchAllreduce, subcommand("allreduce")]
        | Annotated[BenchUpdate, subcommand("update")]
        | Annotated[BenchAccuracy, subcommand("accuracy")]
    )
