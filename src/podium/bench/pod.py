"""Podium's step beside those that others would write, compiled for the same described pod by the same compiler: cycles
of one core, where they go, what goes over the wires, and what the compiler leaves unpriced. No TPU is needed, and the
compiler's estimates are deterministic, so a change of the step can be judged on a laptop. Compilations are cached.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from podium.errors import UserError
from podium.plan.libtpu import Compiled, Stage, compiled, libtpu_version, versions
from podium.plan.machines import Chip, Pod, parse_pod
from podium.plan.peer import Peer
from podium.recipe.reading import load_recipe
from podium.recipe.schema import Recipe

PODIUM, SGD, LARS = "Podium", "flax, SGD", "flax, optax.lars"
PROGRAMS = (PODIUM, SGD, LARS)
NORM_SPAN = 128
# What the compiler's estimates of memory-bound operations come to on every chip (`plan.estimate`), for those without.
BYTES_PER_CYCLE = 240


def run(
    topology: str, images_per_core: Sequence[int], *, programs: Sequence[str] = PROGRAMS, stage: Stage
) -> dict[str, Any]:
    """One row for each number of images a core and each program."""
    if libtpu_version() is None:
        raise UserError(
            "podium bench pod compiles with libtpu, which is not installed; make install EXTRAS=plan brings it"
        )
    pod = parse_pod(topology)
    if pod.chip.is_gpu:
        raise UserError(f"podium bench pod compiles for TPUs, and {topology} has GPUs; use for example v3:4x4")
    rows = []
    for images in images_per_core:
        for name in programs:
            stage(f"{name}, {images} images a core")
            facts = compiled(program(name, pod, images), pod, stage)
            assert facts is not None  # libtpu is there, and the chip is a TPU
            rows.append(_row(name, pod.chip, images, facts=facts))
    return {"topology": str(pod), "norm_span": NORM_SPAN, "versions": versions(), "rows": with_ratios(rows)}


def program(name: str, pod: Pod, images_per_core: int) -> Recipe | Peer:
    """Podium's recipe of the paper, flax's ImageNet example, or that with the paper's optimizer and norm span."""
    batch_global = images_per_core * pod.cores
    if name == PODIUM:
        return load_recipe("resnet50-32k", [f"batch_global={batch_global}", f"model.norm_span={NORM_SPAN}"])
    if name == SGD:
        return Peer(batch_global, optimizer="sgd", label_smoothing=0.0)
    return Peer(batch_global, norm_span=NORM_SPAN)


def _row(name: str, chip: Chip, images_per_core: int, *, facts: Compiled) -> dict[str, Any]:
    operations = facts.operations
    assert operations is not None  # what is cached has them
    cycles, unpriced = facts.program.cycles, facts.program.unpriced_bytes
    whole = cycles + unpriced // BYTES_PER_CYCLE
    sums: Counter[str] = Counter()
    for collective in facts.program.collectives:
        sums[collective.kind] += collective.whole_bytes
    return {
        "program": name,
        "images_per_core": images_per_core,
        "cycles": cycles,
        "unpriced_bytes": unpriced,
        "whole_cycles": whole,
        "cycles_per_image": whole / images_per_core,
        "bytes_accessed": facts.bytes_accessed,
        "flops": facts.flops,
        "share_of_peak": share_of_peak(chip, facts.flops, whole),
        "memory_bytes": facts.memory_bytes,
        "collectives": {
            kind: {"count": sum(c.kind == kind for c in facts.program.collectives), "bytes": size}
            for kind, size in sums.items()
        },
        "overlapped_cycles": sum(c.overlapped_cycles for c in facts.program.collectives),
        **asdict(operations),
    }


def share_of_peak(chip: Chip, flops: float, cycles: int) -> float | None:
    """FLOPs a cycle, of what a core can do at its published clock; None where no clock is published."""
    if chip.clock_hz is None:
        return None
    return flops / (cycles * chip.bf16_flops / chip.cores / chip.clock_hz)


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row's cycles, with those of what has no price, against those of flax with LARS at the same number of images;
    None where that was not asked."""
    lars = {row["images_per_core"]: row["whole_cycles"] for row in rows if row["program"] == LARS}
    return [
        {
            **row,
            "to_lars": row["whole_cycles"] / lars[row["images_per_core"]] if row["images_per_core"] in lars else None,
        }
        for row in rows
    ]
