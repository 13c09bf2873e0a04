"""Reads what the TPU compiler says about a program: cycles, collectives and their algorithms, from the text of a
compiled HLO module. The text lists the entry computation in the order in which it runs, so what stands between an
asynchronous collective's start and its end is what can hide it, and what stands after the gradient sum is the weight
update. It knows nothing of chips or clocks; `estimate` turns cycles and bytes into seconds.
"""

import math
import re
from dataclasses import dataclass, replace

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8}
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")
# Work for which the compiler estimates no cycles where it stands alone. Copies that run beside others are not meant.
_UNPRICED = (
    *("select-and-scatter", "sort", "scatter", "gather"),
    *("pad", "concatenate", "reshape", "dynamic-update-slice"),
)
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>.*?) (?P<opcode>[a-z][a-z0-9\-]*)\((?P<rest>.*)$"
)
_ARRAY = re.compile(r"\b(" + "|".join(_BYTES) + r")\[([\d,]*)\]")
_SCATTERS = re.compile(r"^%?(all-reduce-scatter[\w.\-]*) \(.*?\{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_OFFLOADED = re.compile(r'^%?([\w.\-]+) \([^\n]*\{\n((?:  [^\n]*\n)*)\}, execution_thread="sparsecore"', re.MULTILINE)
_GROUPS = re.compile(r"replica_groups=(?:\{\{[\d,{}]*\}\}|\[[\d,]+\]<=\[[\d,]+\])")
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
        """The larger of what one core puts in and what it gets out."""
        return self.bytes * self.cores if self.kind == "reduce-scatter" else self.bytes


@dataclass(frozen=True)
class Program:
    """A compiled step, in the compiler's own numbers."""

    cycles: int  # of all operations of one core, collectives aside
    update_cycles: int  # of those, after the gradient sum
    unpriced_bytes: int  # in and out of the operations for which the compiler estimates no cycles
    collectives: tuple[Collective, ...]


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    type: str
    opcode: str
    rest: str  # operands, attributes and metadata

    @property
    def cycles(self) -> int | None:
        """None: the compiler gives no price."""
        found = _CYCLES.search(self.rest)
        return int(found[1]) if found else None

    @property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.\-]+)", self.rest.split(")", 1)[0])

    @property
    def is_done(self) -> bool:
        """Whether it ends what an asynchronous start began."""
        return self.opcode.endswith("-done")

    @property
    def calls(self) -> str | None:
        found = re.search(r"calls=%?([\w.\-]+)", self.rest)
        return found[1] if found else None

    @property
    def op_name(self) -> str:
        found = re.search(r'op_name="([^"]*)"', self.rest)
        return found[1] if found else ""


def entry_instructions(text: str) -> list[Instruction]:
    """The entry computation of a compiled module, in the order in which it runs."""
    found = _with_loops(_instructions(text[text.index("\nENTRY ") :]), text)
    groups = {name: _GROUPS.findall(body) for name, body in _SCATTERS.findall(text)}
    return _on_sparse_cores([_unfused(i, groups.get(i.calls or "", [])) for i in found], text)


def _instructions(lines: str) -> list[Instruction]:
    return [Instruction(**match.groupdict()) for line in lines.splitlines() if (match := _INSTRUCTION.match(line))]


def _with_loops(instructions: list[Instruction], text: str) -> list[Instruction]:
    """With the body of each loop in its place, as it runs once: the loop of a step goes round again only where batch
    norm's means were far."""
    read = []
    for instruction in instructions:
        body = re.search(r"body=%?([\w.\-]+)", instruction.rest) if instruction.opcode == "while" else None
        start = re.search(rf"^%?{re.escape(body[1])} \(", text, re.MULTILINE) if body else None
        if start is None:
            read.append(instruction)
        else:
            lines = text[start.start() : text.index("\n}", start.start())]
            read += _with_loops(_instructions(lines), text)
    return read


def _unfused(instruction: Instruction, groups: list[str]) -> Instruction:
    """A reduce-scatter that the compiler writes as a fusion around an all-reduce and a slice, as what it is."""
    if not groups:
        return instruction
    return replace(instruction, opcode="reduce-scatter", rest=f"{instruction.rest}, {groups[0]}")


def _on_sparse_cores(instructions: list[Instruction], text: str) -> list[Instruction]:
    """The start and the end of a call that only does a collective, on another kind of core, as that collective's."""
    called = {name: _INSTRUCTION.match(body.splitlines()[-1]) for name, body in _OFFLOADED.findall(text)}
    kinds: dict[str, str] = {}  # by the name of the start
    read = []
    for instruction in instructions:
        found = re.search(r"to_apply=%?([\w.\-]+)", instruction.rest) if instruction.opcode == "call-start" else None
        root = called.get(found[1]) if found else None
        if root and root["opcode"] in _COLLECTIVES:
            kind = kinds[instruction.name] = root["opcode"]
            given = root["type"] if kind == "all-reduce" else instruction.type
            instruction = Instruction(instruction.name, given, f"{kind}-start", root["rest"])
        elif instruction.opcode == "call-done" and instruction.operands[0] in kinds:
            instruction = replace(instruction, opcode=f"{kinds[instruction.operands[0]]}-done")
        read.append(instruction)
    return read


def read_program(text: str) -> Program:
    """The entry computation of a compiled module."""
    instructions = entry_instructions(text)
    sizes = {instruction.name: array_bytes(instruction.type) for instruction in instructions}
    cycles, unpriced_bytes = 0, 0
    collectives: list[Collective] = []
    started: dict[str, tuple[int, int]] = {}  # by instruction: the collective's number, the cycle at which it started
    for instruction in instructions:
        if is_collective(instruction):
            if instruction.is_done:
                number, began = started[instruction.operands[0]]
                collectives[number] = replace(collectives[number], overlapped_cycles=cycles - began)
                continue
            if instruction.opcode.endswith("-start"):
                started[instruction.name] = len(collectives), cycles
            collectives.append(_collective(instruction))
        elif (priced := instruction.cycles) is not None:
            cycles += priced
        elif instruction.opcode in _UNPRICED:
            unpriced_bytes += sizes[instruction.name] + sum(sizes.get(name, 0) for name in instruction.operands)
    behind = instructions[last_gradient_sum(instructions) + 1 :]
    update_cycles = sum(i.cycles or 0 for i in behind if not is_collective(i))
    return Program(cycles, update_cycles, unpriced_bytes, tuple(collectives))


def is_collective(instruction: Instruction) -> bool:
    return instruction.opcode.startswith(_COLLECTIVES)


def last_gradient_sum(instructions: list[Instruction]) -> int:
    """Where the last large sum ends: what stands behind is the weight update. Gradients may be summed in several
    buckets; what is less than half of the largest is metrics, statistics or norms of weights."""
    sizes = {
        k: _collective(instruction).whole_bytes
        for k, instruction in enumerate(instructions)
        if instruction.opcode.startswith(("all-reduce", "reduce-scatter")) and not instruction.is_done
    }
    large = {instructions[k].name for k, size in sizes.items() if size > 0 and 2 * size >= max(sizes.values())}
    ends = [k for k, i in enumerate(instructions) if i.name in large or (i.is_done and i.operands[0] in large)]
    return ends[-1] if ends else len(instructions)


def _collective(instruction: Instruction) -> Collective:
    kind = next(kind for kind in _COLLECTIVES if instruction.opcode.startswith(kind))
    rest, size = instruction.rest, array_bytes(instruction.type)
    if instruction.opcode.endswith("-start") and kind != "all-reduce":
        size -= sum(map(array_bytes, _operand_types(instruction.type)))
    strategy = re.search(r'"strategy":"(\w+)"', rest)
    emitter = re.search(r'"emitter":"(\w+)"', rest)
    if "DEVICE_TYPE_SPARSECORE" in rest:
        return _sparse_core_collective(kind, size, rest)
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


def _sparse_core_collective(kind: str, size: int, rest: str) -> Collective:
    colours = re.findall(r'"phase_rings":\[(.*?)\]', rest)
    axes = tuple(tuple("XYZ".index(axis) for axis in re.findall(r"RING_DIM_([XYZ])", rings)) for rings in colours)
    return Collective(
        kind=kind,
        bytes=size,
        cores=_group_cores(rest),
        emitter="SparseCore",
        strategy="UniDirectionNDRingStrategy" if "_UNIDIR_" in rest else "StrategyND",
        colours=len(axes),
        phases=max(map(len, axes), default=0),
        axes_of_colours=axes if all(axes) else (),
    )


def _operand_types(type_text: str) -> list[str]:
    """The operands in the tuple (operands, results, …) that an asynchronous start gives."""
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


def array_bytes(type_text: str) -> int:
    return sum(
        _BYTES[dtype] * math.prod(int(d) for d in dims.split(",") if d) for dtype, dims in _ARRAY.findall(type_text)
    )


def _braces(text: str) -> tuple[tuple[int, ...], ...]:
    """'{0 1},{1 0}' → ((0, 1), (1, 0))."""
    return tuple(tuple(map(int, part.split())) for part in re.findall(r"\{([\d ]+)\}", text))
