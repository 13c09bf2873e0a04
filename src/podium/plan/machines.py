"""The machines that can be planned for: what a chip computes, holds and sends, and how chips are joined into a pod or a
cluster. The figures stand in `machines.toml`, each with its source, and a plan marks what it takes from there as
assumed. `parse_pod` reads `v3:32x32` or `a100:96x8` and answers a mistake with the nearest valid choice. Nothing here
needs JAX.
"""

import difflib
import math
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from podium.errors import UserError
from podium.recipe.torus import Shape

_GIB = 2**30


@dataclass(frozen=True)
class Link:
    """One link between neighbours, one way."""

    bandwidth: float  # bytes/s
    hop_seconds: float


@dataclass(frozen=True)
class Chip:
    """A TPU chip, or a GPU. Rates are per chip, memory is per core: what one program sees."""

    name: str
    cores: int
    bf16_flops: float
    memory_bytes_per_core: int
    memory_bandwidth: float
    link_bandwidth: float  # bytes/s one way: of each torus link, or between the GPUs of a node
    largest: tuple[int, ...]  # pod; as many axes as its torus has, or (nodes, GPUs)
    wraps_from: int  # an axis has wrap-around links from this length on
    host_chips: int
    host_cores: int  # CPU cores that decode images
    clock_hz: float | None = None  # None: not published; FLOPs and bytes are then held against the peaks
    node_bandwidth: float = 0.0  # bytes/s one way out of a whole GPU node
    tensor_cores: int = 1  # that run one program as one core
    common_memory: bool = False  # CMEM: 128 MB on the chip, between HBM and the cores

    @property
    def is_gpu(self) -> bool:
        return self.node_bandwidth > 0

    def link(self, hop_seconds: float) -> Link:
        return Link(self.link_bandwidth, hop_seconds)


def _chip(name: str, table: dict[str, Any]) -> Chip:
    """A table of machines.toml without its sources."""
    figures = {key: value for key, value in table.items() if key != "source"}
    memory = figures.pop("memory_gib_per_core") * _GIB
    return Chip(name, memory_bytes_per_core=memory, **figures | {"largest": tuple(figures["largest"])})


_TABLES = tomllib.loads(resources.files("podium.plan").joinpath("machines.toml").read_text())
CHIPS = {name: _chip(name, table) for name, table in _TABLES.items()}


@dataclass(frozen=True)
class Pod:
    """Chips joined in a torus (x, y or x, y, z), or a cluster of (nodes, GPUs per node)."""

    chip: Chip
    shape: tuple[int, ...]

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def cores(self) -> int:
        return self.chips * self.chip.cores

    @property
    def grid(self) -> Shape:
        """Podium's torus: chips stand where they are, and their cores are lanes; the nodes of a cluster stand in a row,
        and their GPUs are lanes."""
        if self.chip.is_gpu:
            return Shape(1, *self.shape)
        return Shape(self.chips // self.shape[0], self.shape[0], self.chip.cores)

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Whether each axis is closed to a ring. Pods longer than 32 are several pods side by side, and open."""
        return tuple(self.chip.wraps_from <= length <= 32 for length in self.shape)

    @property
    def hosts(self) -> int:
        return max(1, self.chips // self.chip.host_chips)

    def __str__(self) -> str:
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"


def parse_pod(text: str) -> Pod:
    """'v3:32x32' → Pod."""
    name, _, shape_text = text.strip().lower().partition(":")
    if name not in CHIPS:
        near = difflib.get_close_matches(name, CHIPS, 1, cutoff=0.3) or ["v3"]
        raise UserError(
            f"--topology {text!r}: there is no chip {name!r}; use for example {_example(CHIPS[near[0]])} "
            f"(chips: {', '.join(CHIPS)})"
        )
    chip = CHIPS[name]
    parts = shape_text.split("x")
    if not all(part.isdigit() and int(part) > 0 for part in parts) or len(parts) != len(chip.largest):
        form = "NODESxGPUS" if chip.is_gpu else "x".join("XYZ"[: len(chip.largest)])
        raise UserError(f"--topology {text!r} is not {name}:{form}; write for example {_example(chip)}")
    shape = tuple(map(int, parts))
    if chip.name == "v3" and sorted(shape, reverse=True) == list(shape[::-1]) and shape[0] < shape[1]:
        limits: tuple[int, ...] = chip.largest[::-1]
    else:
        limits = chip.largest
    # A host holds 2×2 chips, so both its axes are even; axes further out are free.
    valid = tuple(
        min(length if chip.is_gpu or axis > 1 else max(2, length + length % 2), limit)
        for axis, (length, limit) in enumerate(zip(shape, limits, strict=True))
    )
    if shape != valid:
        largest = "x".join(map(str, chip.largest))
        hosts = "" if chip.is_gpu else ", hosts hold 2x2 chips"
        raise UserError(
            f"--topology {text} does not exist (the largest is {name}:{largest}{hosts}); the nearest is "
            f"{name}:{'x'.join(map(str, valid))}"
        )
    return Pod(chip, shape)


def usual_sizes(chip: Chip) -> list[Pod]:
    """The usual slices of a chip's pod, smallest first: each axis doubles in turn; for a GPU, the number of nodes."""
    if chip.is_gpu:
        return [Pod(chip, (2**k, chip.host_chips)) for k in range(10)]
    axes = len(chip.largest)
    first = (2, 2, 1)[:axes]
    sizes = [first]
    while True:
        shape = sizes[-1]
        grown = [k for k in range(axes) if shape[k] * 2 <= chip.largest[k]]
        if not grown:
            return [Pod(chip, shape) for shape in sizes]
        axis = min(grown, key=lambda k: (shape[k], -k))
        sizes.append(tuple(length * 2 if k == axis else length for k, length in enumerate(shape)))


def _example(chip: Chip) -> str:
    lengths = (4, 8) if chip.is_gpu else (4, 4, 4)[: len(chip.largest)]
    return f"{chip.name}:{'x'.join(map(str, lengths))}"
