"""Reads what the TPU compiler says about a program: cycles, collectives and their algorithms, from the text of a
compiled HLO module. The text lists the entry computation in the order in which it runs, so what stands between an
asynchronous collective's start and its end is what can hide it, and what stands after the gradient sum is the weight
update. It knows nothing of chips or clocks; `model` turns cycles and bytes into seconds.
"""

import math
import re
from dataclasses import dataclass

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8}
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")
_UNPRICED = ("select-and-scatter", "sort", "scatter", "gather")  # work for which the compiler estimates no cycles
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>.*?) (?P<opcode>[a-z][a-z0-9\-]*)\((?P<rest>.*)$"
)
_ARRAY = re.compile(r"\b(" + "|".join(_BYTES) + r")\[([\d,]*)\]")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


@dataclass(frozen=True)
class Collective:
    """One collective of the step, as one core sees it."""

    kind: str  # all-reduce, reduce-scatter, …
    bytes: int  # of what comes out on one core
    cores: int  # that take part together
    emitter: str = ""
    strategy: str = ""
    colours: int = 0  # 0: the compiler does not say
    phases: int = 0
    rings: tuple[tuple[int, ...], ...] = ()  # of each colour: the cores of its rings, phase by phase
    axes_of_colours: tuple[tuple[int, ...], ...] = ()  # the torus axes that each colour goes along, in order
    overlapped_cycles: int = 0  # scheduled between its start and its end

    @property
    def whole_bytes(self) -> int:
        """Of what one core puts in or gets out, whichever is more."""
        return self.bytes * self.cores if self.kind == "reduce-scatter" else self.bytes


@dataclass(frozen=True)
class Program:
    """A compiled step, in the compiler's own numbers."""

    cycles: int  # of all operations of one core, collectives aside
    update_cycles: int  # of those, after the gradient sum
    unpriced_bytes: int  # in and out of the operations for which the compiler estimates no cycles
    collectives: tuple[Collective, ...]


def read_program(text: str) -> Program:
    """The entry computation of a compiled module."""
    lines = text[text.index("\nENTRY ") :].splitlines()
    instructions = [found for line in lines if (found := _INSTRUCTION.match(line))]
    bytes_of = {found["name"]: _bytes(found["type"]) for found in instructions}
    cycles, unpriced_bytes = 0, 0
    collectives: list[Collective] = []
    ends: list[int] = []  # the cycle at which each collective ends
    started: dict[str, int] = {}  # the collective's number and the cycle at which it started, by instruction
    began: dict[str, int] = {}
    for found in instructions:
        opcode, rest = found["opcode"], found["rest"]
        kind = next((kind for kind in _COLLECTIVES if opcode.startswith(kind)), None)
        if kind and opcode.endswith("-done"):
            name = _operands(rest)[0]
            if name in started:
                number = started[name]
                collectives[number] = _with_overlap(collectives[number], cycles - began[name])
                ends[number] = cycles
        elif kind:
            if opcode.endswith("-start"):
                started[found["name"]], began[found["name"]] = len(collectives), cycles
            collectives.append(_collective(kind, opcode, found["type"], rest))
            ends.append(cycles)
        elif (priced := _CYCLES.search(rest)) is not None:
            cycles += int(priced[1])
        elif opcode in _UNPRICED:
            unpriced_bytes += bytes_of[found["name"]] + sum(bytes_of.get(name, 0) for name in _operands(rest))
    return Program(cycles, cycles - _summed_at(collectives, ends, cycles), unpriced_bytes, tuple(collectives))


def _summed_at(collectives: list[Collective], ends: list[int], cycles: int) -> int:
    """The cycle at which the last large sum ends. Gradients may be summed in several buckets; what is less than half of
    the largest is metrics, statistics or norms of weights."""
    sizes = [c.whole_bytes if c.kind in ("all-reduce", "reduce-scatter") else 0 for c in collectives]
    large = [end for size, end in zip(sizes, ends, strict=True) if size > 0 and 2 * size >= max(sizes)]
    return max(large, default=cycles)


def _collective(kind: str, opcode: str, type_text: str, rest: str) -> Collective:
    size = _bytes(type_text)
    if opcode.endswith("-start") and kind != "all-reduce":
        size = _bytes(type_text) - sum(map(_bytes, _operand_types(type_text)))
    strategy = re.search(r'"strategy":"(\w+)"', rest)
    emitter = re.search(r'"emitter":"(\w+)"', rest)
    debug = re.search(r"colors:(\d+) phases:(\d+) cores:((?:\{[\d ]+\},?)+)", rest)
    axes = re.search(r"dim_used:((?:\{[\d ]+\},?)+)", rest)
    return Collective(
        kind=kind,
        bytes=size,
        cores=_group_cores(rest),
        emitter=emitter[1] if emitter else "",
        strategy=strategy[1] if strategy else "",
        colours=int(debug[1]) if debug else 0,
        phases=int(debug[2]) if debug else 0,
        rings=_braces(debug[3]) if debug else (),
        axes_of_colours=_braces(axes[1]) if axes else (),
    )


def _with_overlap(collective: Collective, cycles: int) -> Collective:
    return Collective(**{**vars(collective), "overlapped_cycles": cycles})


def _operand_types(type_text: str) -> list[str]:
    """Of the tuple (operands, results, …) that an asynchronous start gives: the operands."""
    nested = re.match(r"\(\((?P<many>.*?)\), |\((?P<one>[^,(]*\[[\d,]*\][^,]*(?:,[^,\[]*)*?), ", type_text)
    return [nested["many"] or nested["one"]] if nested else []


def _group_cores(rest: str) -> int:
    """replica_groups={{0,1,…},…} or [groups,cores]<=[…]; a permutation joins two."""
    if "source_target_pairs" in rest:
        return 2
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=", rest):
        return int(iota[2])
    listed = re.search(r"replica_groups=\{\{([\d,]+)\}", rest)
    return listed[1].count(",") + 1 if listed else 1


def _operands(rest: str) -> list[str]:
    return re.findall(r"%([\w.\-]+)", rest.split(")", 1)[0])


def _bytes(type_text: str) -> int:
    return sum(
        _BYTES[dtype] * math.prod(int(d) for d in dims.split(",") if d) for dtype, dims in _ARRAY.findall(type_text)
    )


def _braces(text: str) -> tuple[tuple[int, ...], ...]:
    """'{0 1},{1 0}' → ((0, 1), (1, 0))."""
    return tuple(tuple(map(int, part.split())) for part in re.findall(r"\{([\d ]+)\}", text))
