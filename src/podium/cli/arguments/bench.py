"""`podium bench …`: one command for each thing that is measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg, subcommand

from podium.cli.arguments.command import Command, option

Count = Annotated[int, arg(metavar="N")]


@dataclass(frozen=True)
class BenchStep(Command):
    """Compare a training step with PyTorch's, eager and compiled: same network, batch and cores."""

    cases: Annotated[tuple[str, ...], arg(metavar="CASE…")] = ("cifar", "resnet50")
    """cifar: recipe cifar10-sgd, 32 px, batch 128. resnet50: 224 px, batch 16. resnet18: 64 px, batch 128.
    cifar-narrow: 32 channels."""
    rounds: Count = 7
    """Number of rounds; in each, all take their turn."""
    cores: Annotated[int | None, option("N")] = None
    """Cores to use. Default: all."""
    isa: Annotated[str | None, option("ISA")] = None
    """Instructions to use at most, avx512 or avx2. Default: all that the processor has."""

    does: ClassVar[str] = "podium.cli.bench:step"
    computes: ClassVar[bool] = True


@dataclass(frozen=True)
class BenchUpdate(Command):
    """Compare sharded and replicated weight updates, on simulated chips."""

    torus: Annotated[str, arg(metavar="ROWSxCOLS")] = "4x4"
    """Grid of simulated chips."""
    rounds: Count = 9
    """Number of rounds; in each, both take their turn."""

    does: ClassVar[str] = "podium.cli.bench:update"
    computes: ClassVar[bool] = True


@dataclass(frozen=True)
class BenchPod(Command):
    """Compare the step's cycles on a TPU pod with plain Flax's, by the TPU's own compiler. No TPU is needed."""

    topology: Annotated[str, arg(metavar="CHIP:XxY")] = "v3:4x4"
    """Pod to compile for. A core's cycles do not depend on the size of the pod."""
    images: Annotated[tuple[int, ...], arg(metavar="N…")] = (16,)
    """Images per core. Each takes some minutes to compile; results are cached."""
    out: Annotated[Path | None, option("FILE.html")] = None
    """Page to write, with a picture."""

    does: ClassVar[str] = "podium.cli.bench:pod"
    needs_device: ClassVar[bool] = False


@dataclass(frozen=True)
class BenchInput(Command):
    """Compare the input pipeline with tf.data, DALI, OpenCV and others: images per second on the same files."""

    data: Annotated[str | None, option("PATH", "the demo's images")] = None
    """A prepared directory, or any source that `podium prepare` takes."""
    threads: Annotated[tuple[int, ...], arg(metavar="N…")] = (1, 2)
    """Thread counts to measure."""
    rounds: Count = 5
    """Number of rounds; in each, all take their turn."""
    memory_images: Annotated[int, arg(metavar="N", help_behavior_hint="")] = 0
    """Also watch the loader's memory while it reads this many images."""

    does: ClassVar[str] = "podium.cli.bench:input_rate"


@dataclass(frozen=True)
class BenchAllreduce(Command):
    """Compare ways to sum gradients between processes: XLA's, a ring, and the 2-D torus. Sums are checked."""

    torus: Annotated[str, arg(metavar="ROWSxCOLS")] = "2x2"
    """Grid of hosts, each a process of its own. ROWSxCOLSxLANES also sets the number of devices per host."""
    links: Annotated[str, arg(metavar="shared|torus")] = "shared"
    """shared: plain loopback. torus: network namespaces joined by rate-limited links; needs root."""
    rate: Annotated[str, arg(metavar="RATE")] = "200mbit"
    """Rate of each link, with --links torus."""
    sizes: Annotated[tuple[int, ...], option("BYTES…", "64 KB to the 102 MB of ResNet-50")] = ()
    """Sizes to sum."""
    repeats: Count = 5
    """Number of rounds at each size; in each, all take their turn."""
    only: Annotated[tuple[str, ...], option("NAME…", "all")] = ()
    """Ways to compare, by the names in the output."""
    dead: Annotated[tuple[int, ...], option("HOST…", "none")] = ()
    """Hosts that are not there, counted row by row from 0: the others sum around them."""

    does: ClassVar[str] = "podium.cli.bench:allreduce"


@dataclass(frozen=True)
class BenchAccuracy(Command):
    """Train rows of docs/accuracy.md again and redraw its tables and plots. Without arguments, list the rows."""

    rows: Annotated[Positional[tuple[str, ...]], option("ROW…")] = ()
    """Names of rows."""
    data: Annotated[str | None, option("PATH")] = None
    """CIFAR-10: a prepared directory, or any source that `podium prepare` takes."""
    seeds: Annotated[tuple[int, ...], option("N…", "those of the rows")] = ()
    """Seeds to train with."""
    results: Path = Path("results/accuracy")
    """Directory of the results, one file per row."""
    runs: Path = Path("runs/accuracy")
    """Directory of the runs. An unfinished run resumes; a finished one is read."""
    page: Annotated[Path | None, option("FILE.md")] = None
    """Page to redraw from the results, with its plots."""

    does: ClassVar[str] = "podium.cli.bench:accuracy"


@dataclass(frozen=True)
class BenchAll(Command):
    """Run every benchmark in a short form, and write the ratios to one file. Takes some ten minutes."""

    parts: Annotated[Positional[tuple[str, ...]], option("PART…", "all")] = ()
    """Some of them only: step, input, update, allreduce, pod, accuracy, resume."""
    results: Path = Path("results/bench")
    """Directory of the result, DATE-MACHINE.json."""

    does: ClassVar[str] = "podium.cli.bench:every"


Bench = (
    Annotated[BenchStep, subcommand("step")]
    | Annotated[BenchInput, subcommand("input")]
    | Annotated[BenchAllreduce, subcommand("allreduce")]
    | Annotated[BenchUpdate, subcommand("update")]
    | Annotated[BenchPod, subcommand("pod")]
    | Annotated[BenchAccuracy, subcommand("accuracy")]
    | Annotated[BenchAll, subcommand("all")]
)
