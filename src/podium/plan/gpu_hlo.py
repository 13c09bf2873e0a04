"""Reads what XLA's GPU compiler says about a program, from the text of the compiled module: kernels, the time that it
estimates for fused operations, cuDNN's convolutions against the card's peaks, and every collective with its group and
the work that is scheduled between its start and its end. The text lists the entry computation in the order in which it
runs. It knows nothing of NCCL; `gpu_estimate` turns this into a step's time.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from podium.plan.hlo import Instruction, array_bytes, entry_instructions, is_collective

_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "partition-id", "replica-id", "after-all")
_SOL = re.compile(r'"exec_time_us":([\d.e+\-]+)[^{}]*"name":"sol"')
_SHORTEST_GRAPH = 5
_DIMS = re.compile(r"\w+\[([\d,]*)\]")


@dataclass(frozen=True)
class Peaks:
    """What one card reaches at most."""

    flops: float
    bandwidth: float


@dataclass(frozen=True)
class Load:
    """Work of one GPU, in µs: fusions by the compiler's estimate, convolutions by the card's peaks."""

    fusion_us: float = 0.0
    convolution_us: float = 0.0
    kernels: int = 0

    def __add__(self, other: "Load") -> "Load":
        return Load(
            self.fusion_us + other.fusion_us,
            self.convolution_us + other.convolution_us,
            self.kernels + other.kernels,
        )


@dataclass(frozen=True)
class GpuCollective:
    kind: str
    bytes: int  # of what comes out on one GPU
    gpus: int  # that take part together
    hosts: int  # over which those are spread
    synchronous: bool
    under: Load = Load()  # what is scheduled between its start and its end


@dataclass(frozen=True)
class Launches:
    """What the host launches in a step."""

    graphs: int  # CUDA graphs
    in_graphs: int  # kernels in those
    alone: int  # kernels by themselves: convolutions, which XLA captures in no graph, and short runs of others


@dataclass(frozen=True)
class GpuProgram:
    """A compiled step, on one GPU."""

    whole: Load
    update: Load  # of that, after the last convolution
    convolutions: int
    convolution_flops: float
    channels_last: bool  # every convolution of images takes and gives NHWC
    launches: "Launches"
    collectives: tuple[GpuCollective, ...]


Prices = dict[tuple[str, str], float]
"""µs by (operation, type), for a card that the compiler has no estimates for."""


def read_gpu_program(text: str, peaks: Peaks, *, gpus_per_host: int, prices: Prices | None = None) -> GpuProgram:
    """The entry computation of a compiled module. `prices` stand in where the compiler gives none."""
    instructions = entry_instructions(text)
    types = {instruction.name: instruction.type for instruction in instructions}
    loads = [_load(instruction, types, peaks=peaks, prices=prices or {}) for instruction in instructions]
    convolutions = [k for k, instruction in enumerate(instructions) if _is_convolution(instruction)]
    last = convolutions[-1] if convolutions else -1
    return GpuProgram(
        whole=sum(loads, Load()),
        update=sum(loads[last + 1 :], Load()),
        convolutions=len(convolutions),
        convolution_flops=sum(_convolution_work(instructions[k], types)[0] for k in convolutions),
        channels_last=all(_is_channels_last(instructions[k].rest) for k in convolutions),
        launches=_launches(instructions, loads),
        collectives=tuple(_collectives(instructions, loads, gpus_per_host)),
    )


def prices_of(text: str) -> Prices:
    """What the compiler estimates, by operation and type."""
    return {(i.op_name, i.type): us for i in entry_instructions(text) if (us := _estimate_us(i)) is not None}


def _load(instruction: Instruction, types: dict[str, str], *, peaks: Peaks, prices: Prices) -> Load:
    if instruction.opcode in _FREE or is_collective(instruction) or instruction.is_done:
        return Load()
    if _is_convolution(instruction):
        flops, moved = _convolution_work(instruction, types)
        return Load(convolution_us=1e6 * max(flops / peaks.flops, moved / peaks.bandwidth), kernels=1)
    us = _estimate_us(instruction)
    if us is None:
        us = prices.get((instruction.op_name, instruction.type))
    if us is None:  # a copy, or an operation without a price: its result is written, and about as much is read
        us = 1e6 * 2 * array_bytes(instruction.type) / peaks.bandwidth
    return Load(fusion_us=us, kernels=1)


def _estimate_us(instruction: Instruction) -> float | None:
    found = _SOL.search(instruction.rest)
    return float(found[1]) if found and not is_collective(instruction) else None


def _is_convolution(instruction: Instruction) -> bool:
    return instruction.opcode == "custom-call" and '"__cudnn$conv' in instruction.rest


def _is_channels_last(rest: str) -> bool:
    labels = re.search(r"dim_labels=(\w+)_\w+->(\w+)", rest)
    return labels is not None and labels[1] == "b01f" and ("Filter" in rest or labels[2] == "b01f")


def _convolution_work(instruction: Instruction, types: dict[str, str]) -> tuple[float, float]:
    """FLOPs, and bytes in and out. Of three arrays (images in, kernel, images out) a call has two as operands and one
    as its result; a position of the images out takes a kernel's worth of multiplications."""
    arrays = [types.get(name, "") for name in instruction.operands[:2]] + [instruction.type]
    shapes = [[int(d) for d in found[1].split(",") if d] for found in map(_DIMS.search, arrays) if found]
    moved = float(sum(map(array_bytes, arrays)))
    kind = instruction.rest
    if "convBackwardInput" in kind:
        images_out, kernel = shapes[0], shapes[1]
    elif "convBackwardFilter" in kind:
        images_out, kernel = shapes[1], shapes[2]
    else:
        images_out, kernel = shapes[2], shapes[1]
    return 2.0 * math.prod(images_out[:-1]) * math.prod(kernel), moved


def _launches(instructions: list[Instruction], loads: list[Load]) -> Launches:
    """Runs of kernels between convolutions and collectives become CUDA graphs, from the length on that XLA's option
    xla_gpu_graph_min_graph_size has by default."""
    runs, alone = [0], 0
    for instruction, load in zip(instructions, loads, strict=True):
        if _is_convolution(instruction):
            alone += 1
        if _is_convolution(instruction) or is_collective(instruction) or instruction.is_done:
            runs.append(0)
        else:
            runs[-1] += load.kernels
    graphs = [run for run in runs if run >= _SHORTEST_GRAPH]
    return Launches(len(graphs), sum(graphs), alone + sum(runs) - sum(graphs))


def _collectives(instructions: list[Instruction], loads: list[Load], gpus_per_host: int) -> Iterator[GpuCollective]:
    ends = {i.operands[0]: k for k, i in enumerate(instructions) if i.is_done and i.operands}
    for k, instruction in enumerate(instructions):
        if not is_collective(instruction) or instruction.is_done:
            continue
        kind = instruction.opcode.removesuffix("-start")
        groups = _groups(instruction.rest)
        hosts = max((len({gpu // gpus_per_host for gpu in group}) for group in groups), default=1)
        found = GpuCollective(
            kind, _result_bytes(instruction), len(groups[0]) if groups else 1, hosts,
            synchronous=instruction.name not in ends or '"is_sync":true' in instruction.rest,
        )  # fmt: skip
        if not found.synchronous:
            found = replace(found, under=sum(loads[k + 1 : ends[instruction.name]], Load()))
        yield found


def _result_bytes(instruction: Instruction) -> int:
    """A start of anything but a sum names operands and results; of equal halves or growing by the group, the largest
    part is the result."""
    whole = array_bytes(instruction.type)
    if not instruction.opcode.endswith("-start") or instruction.opcode.startswith("all-reduce"):
        return whole
    return max(map(array_bytes, re.findall(r"\w+\[[\d,]*\]", instruction.type)), default=whole)


def _groups(rest: str) -> list[list[int]]:
    """replica_groups={{0,1},{2,3}} or [groups,size]<=[dims]T(order); and none where all take part."""
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest):
        count, size = int(iota[1]), int(iota[2])
        dims = [int(d) for d in iota[3].split(",")]
        order = [int(d) for d in iota[4].split(",")] if iota[4] else list(range(len(dims)))
        numbers = _transposed(dims, order)
        return [numbers[g * size : (g + 1) * size] for g in range(count)]
    listed = re.search(r"replica_groups=\{(\{[\d,{}]*\})\}", rest)
    return [[int(n) for n in group.split(",")] for group in re.findall(r"\{([\d,]+)\}", listed[1])] if listed else []


def _transposed(dims: list[int], order: list[int]) -> list[int]:
    """0 … n−1 laid out in `dims`, read with its axes in `order`."""
    strides = [math.prod(dims[k + 1 :]) for k in range(len(dims))]
    numbers = [0]
    for axis in order:
        numbers = [number + k * strides[axis] for number in numbers for k in range(dims[axis])]
    return numbers


def program_to_json(program: GpuProgram) -> dict[str, Any]:
    """Equal collectives told once, with their count."""
    table = asdict(program)
    alike: dict[str, dict[str, Any]] = {}
    for entry in table.pop("collectives"):
        known = alike.setdefault(str(entry), {**entry, "count": 0})
        known["count"] += 1
    return {**table, "collectives": list(alike.values())}


def program_from_json(table: dict[str, Any]) -> GpuProgram:
    collectives = []
    for entry in table["collectives"]:
        fields = {name: value for name, value in entry.items() if name not in ("count", "under")}
        collectives += [GpuCollective(**fields, under=Load(**entry["under"]))] * entry["count"]
    whole, update = Load(**table["whole"]), Load(**table["update"])
    launches = Launches(**table["launches"])
    parts = {"whole": whole, "update": update, "launches": launches, "collectives": tuple(collectives)}
    return GpuProgram(**{**table, **parts})
