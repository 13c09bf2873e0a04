"""Where a compiled step's cycles go: every priced operation in one of seven groups, the dearest of them, and those for
which the compiler gives no price. An operation belongs where its metadata and the convolution inside it say; which
lines of a model's source it came from does not matter, so that Podium's step and its peers are counted alike.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from podium.plan.hlo import Instruction, array_bytes, entry_instructions, is_collective, last_gradient_sum

FORWARD = "convolutions, forward"
DATA_GRADIENT = "convolutions, data gradient"
WEIGHT_GRADIENT = "convolutions, weight gradient"
ELEMENT_WISE = "batch norm and element-wise"
POOLING = "pooling"
UPDATE = "update"
COPIES = "copies"
GROUPS = (FORWARD, DATA_GRADIENT, WEIGHT_GRADIENT, ELEMENT_WISE, POOLING, UPDATE, COPIES)

DEAREST = 20
_SMALL_BYTES = 1024  # an operation without a price that moves less is arithmetic on scalars
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "partition-id", "replica-id", "after-all")
_COPIES = ("copy", "copy-start", "transpose", "reshape", "slice", "pad", "concatenate")
_CONVOLUTION = re.compile(
    r" = \S*?\[(?P<dims>[\d,]*)\]\S* convolution\(.*dim_labels=(?P<lhs>\w+)_\w+->\w+(?:.*op_name=\"(?P<op>[^\"]*)\")?"
)
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_CALLS = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")


@dataclass(frozen=True)
class Operation:
    """An operation of the entry computation, or several alike without a price."""

    name: str
    group: str
    cycles: int
    bytes: int  # in and out
    of: str  # what it does, from the program's own names
    shape: str
    count: int = 1


@dataclass(frozen=True)
class Operations:
    groups: dict[str, int]  # cycles
    dearest: tuple[Operation, ...]
    unpriced: tuple[Operation, ...]
    under_collectives: dict[str, int] = field(default_factory=dict)  # cycles, of the groups: scheduled while one runs


def operations_from_json(table: dict[str, Any]) -> Operations:
    dearest, unpriced = (tuple(Operation(**entry) for entry in table[name]) for name in ("dearest", "unpriced"))
    return Operations(table["groups"], dearest, unpriced, table.get("under_collectives", {}))


def read_operations(text: str) -> Operations:
    """The entry computation of a compiled module, by groups."""
    instructions = entry_instructions(text)
    sizes = {i.name: array_bytes(i.type) for i in instructions}
    inside = _convolutions(text)
    weights = {_dims(i.type) for i in instructions if i.opcode == "parameter"}
    last_sum = last_gradient_sum(instructions)
    priced, unpriced = [], []
    under: Counter[str] = Counter()
    running = 0  # collectives that have started and not ended
    for k, instruction in enumerate(instructions):
        if is_collective(instruction):
            running += instruction.opcode.endswith("-start") - instruction.is_done
        if instruction.opcode in _FREE or is_collective(instruction):
            continue
        group = _group(instruction, inside.get(instruction.calls or ""), weights, after_sum=k > last_sum)
        moved = sizes[instruction.name] + sum(sizes.get(name, 0) for name in instruction.operands)
        found = Operation(
            instruction.name, group, instruction.cycles or 0, moved, _of(instruction), _shape(instruction.type)
        )
        if instruction.cycles is not None:
            priced.append(found)
            under[group] += found.cycles if running else 0
        elif moved >= _SMALL_BYTES and not instruction.is_done:
            unpriced.append(found)
    cycles = Counter({group: 0 for group in GROUPS})
    for operation in priced:
        cycles[operation.group] += operation.cycles
    dearest = sorted(priced, key=lambda operation: -operation.cycles)[:DEAREST]
    return Operations(dict(cycles), tuple(dearest), _together(unpriced), {g: n for g, n in under.items() if n})


def _group(instruction: Instruction, convolution: re.Match[str] | None, weights: set[str], *, after_sum: bool) -> str:
    name = instruction.op_name
    if convolution is not None:
        if "transpose(" not in (convolution["op"] or name):
            return FORWARD
        lhs = convolution["lhs"]
        # The gradient of a kernel sums over the examples: its features are the forward convolution's examples.
        over_examples = lhs.index("f") < lhs.index("b")
        return WEIGHT_GRADIENT if over_examples or _sorted(convolution["dims"]) in weights else DATA_GRADIENT
    if instruction.opcode in _COPIES:
        return COPIES
    if re.search(r"reduce_window|select_and_scatter|select_and_gather|pool", name):
        return POOLING
    if after_sum or (name and "jvp(" not in name):
        return UPDATE
    return ELEMENT_WISE


def _convolutions(text: str) -> dict[str, re.Match[str]]:
    """The convolution in each computation, or in one that it calls."""
    found: dict[str, re.Match[str]] = {}
    calls: dict[str, list[str]] = {}
    current = ""
    for line in text.splitlines():
        if (begins := _COMPUTATION.match(line)) is not None:
            current = begins[1]
        elif (convolution := _CONVOLUTION.search(line)) is not None:
            found.setdefault(current, convolution)
        elif (called := _CALLS.search(line)) is not None:
            calls.setdefault(current, []).append(called[1])
    # A fusion's inner computations stand before it in the text, so one pass in order is enough.
    for outer, inner in calls.items():
        for name in inner:
            if name in found:
                found.setdefault(outer, found[name])
    return found


def _together(operations: list[Operation]) -> tuple[Operation, ...]:
    """Those that do the same on the same shape told once, the largest first."""
    alike: dict[tuple[str, str], Operation] = {}
    for operation in operations:
        key = operation.of, operation.shape
        known = alike.get(key)
        if known is None:
            alike[key] = operation
        else:
            both = known.bytes + operation.bytes
            alike[key] = Operation(known.name, known.group, 0, both, known.of, known.shape, known.count + 1)
    return tuple(sorted(alike.values(), key=lambda operation: -operation.bytes))


def _of(instruction: Instruction) -> str:
    target = re.search(r'custom_call_target="([^"]*)"', instruction.rest)
    what = f"{instruction.opcode} {target[1]}" if target else instruction.opcode
    path = "/".join(part for part in instruction.op_name.split("/") if part not in ("jit(train)", "shard_map"))
    return f"{what}: {path}" if path else what


def _shape(type_text: str) -> str:
    """'(f32[64]{0:T(256)}, bf16[16,112,112,64]{3,…})' → its largest array, without the layout."""
    arrays = re.findall(r"\w+\[[\d,]*\]", type_text)
    return max(arrays, key=array_bytes, default="")


def _dims(type_text: str) -> str:
    found = re.search(r"\[([\d,]*)\]", type_text)
    return _sorted(found[1]) if found else ""


def _sorted(dims: str) -> str:
    return ",".join(sorted(dims.split(",")))
