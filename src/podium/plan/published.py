"""Holds the planner against the world: throughputs that others measured and published, planned with the pod and batch
that they had and with the program that they ran, which is a plain peer's (`peer_step`) and not Podium's. The two fitted
constants are found on every second point and tested on the rest; the same constants then price Podium's step. The
compilations are kept beside this file, so the check runs without libtpu and says what they were made with.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np

from podium.errors import UserError
from podium.plan import libtpu
from podium.plan.estimate import CONSTANTS, Constants, Estimate, estimate
from podium.plan.libtpu import Compiled, Stage
from podium.plan.machines import Pod, parse_pod
from podium.plan.peer import Peer
from podium.recipe.reading import load_recipe
from podium.recipe.schema import Recipe

_KEPT = Path(str(resources.files("podium"))) / "plan" / "published.json"
_PODIUM = "podium"  # the name under which Podium's own step on the paper's pod is kept


@dataclass(frozen=True)
class Point:
    """A published run; `images_per_second` includes its evaluations. What its submission did beyond a plain step is
    what the public code and scripts of that round say."""

    name: str
    topology: str
    batch_global: int
    norm_span: int
    epochs: float
    images_per_second: float
    source: str
    stem: Literal["conv7", "space_to_depth"] = "conv7"
    gradient_sum: Literal["fp32", "bf16"] = "fp32"
    sharded_update: bool = False

    @property
    def pod(self) -> Pod:
        return parse_pod(self.topology)

    @property
    def recipe(self) -> Recipe:
        """How long it trained and how often it evaluated; the step is the peer's."""
        sets = [f"batch_global={self.batch_global}", f"model.norm_span={self.norm_span}", f"epochs={self.epochs}"]
        return replace(load_recipe("resnet50-32k", sets), name=self.name)

    @property
    def peer(self) -> Peer:
        # Their hosts delivered images in the layout that the first convolution wants: by the batch of a core.
        layout: Literal["HWNC", "HWCN"] = "HWNC" if self.batch_global // self.pod.cores <= 8 else "HWCN"
        return Peer(
            batch_global=self.batch_global,
            norm_span=self.norm_span,
            stem=self.stem,
            gradient_sum=self.gradient_sum,
            image_layout=layout,
        )


# In the order in which they were published: first by generation, then by size. Every second one, from the first on, is
# for fitting; the rule was fixed before the first fit. From 1024 chips on, MLPerf's runs sharded the weight update
# (arXiv 1909.09756, 2011.03641); the 0.7 code rearranges images from 8 a core down; the scripts of the v4 rounds ask
# for space-to-depth, and for sums in bfloat16 up to 8192 replicas.
_V4 = {"stem": "space_to_depth", "gradient_sum": "bf16", "sharded_update": True}
POINTS = (
    Point("v3-16", "v3:4x4", 4096, 128, 60, 31.2e3, "MLPerf 0.6"),
    Point("v3-64", "v3:8x8", 16384, 128, 64, 125e3, "MLPerf 0.6"),
    Point("v3-128", "v3:8x16", 32768, 128, 72, 242e3, "MLPerf 0.6"),
    Point("v3-256", "v3:16x16", 32768, 64, 72, 354e3, "MLPerf 0.6"),
    Point("v3-512", "v3:16x32", 32768, 32, 76, 738e3, "MLPerf 0.6"),
    Point("v3-1024", "v3:32x32", 32768, 128, 72, 1.30e6, "MLPerf 0.6", sharded_update=True),
    Point("paper", "v3:32x32", 32768, 128, 90, 1.05e6, "arXiv 1811.06992"),
    Point("v3-4096", "v3:128x32", 65536, 64, 92, 4.7e6, "MLPerf 0.7", "space_to_depth", sharded_update=True),
    Point("v4-2048", "v4:8x16x16", 32768, 64, 60, 4.7e6, "MLPerf 1.0", **_V4),  # type: ignore[arg-type]
    Point("v4-3456", "v4:12x12x24", 55296, 64, 76, 8.0e6, "MLPerf 1.0", **_V4),  # type: ignore[arg-type]
    Point("v4-4096", "v4:16x16x16", 32768, 64, 60, 7.6e6, "MLPerf 2.0", **_V4),  # type: ignore[arg-type]
)
_PAPER = next(point for point in POINTS if point.name == "paper")


@dataclass(frozen=True)
class Checked:
    point: Point
    fitted: bool
    predicted: float
    compiled_with: str

    @property
    def error(self) -> float:
        return self.predicted / self.point.images_per_second - 1


@dataclass(frozen=True)
class Beside:
    """The paper's pod by the same constants: Podium's step, and the peer's that the paper's run is planned with."""

    podium_images_per_second: float
    peer_images_per_second: float

    @property
    def gain(self) -> float:
        return self.podium_images_per_second / self.peer_images_per_second - 1


@dataclass(frozen=True)
class Check:
    points: tuple[Checked, ...]
    not_compiled: tuple[str, ...]  # points whose compilation does not come with Podium yet
    beside: Beside | None


def is_fitted(point: Point) -> bool:
    return POINTS.index(point) % 2 == 0


def kept() -> dict[str, Compiled]:
    """The compilations that come with Podium, by point."""
    tables = json.loads(_KEPT.read_text())
    return {name: replace(libtpu.from_json(table), earlier=True) for name, table in tables.items()}


def keep(facts: dict[str, Compiled]) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(libtpu.to_json(of_point))}" for name, of_point in facts.items()]
    _KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def check(stage: Stage, *, fresh: bool = False, constants: Constants = CONSTANTS) -> Check:
    """Every point, from the compilations at hand; `fresh` compiles them again with the libtpu that is installed."""
    facts = _compile_all(stage) if fresh else kept()
    points = tuple(
        Checked(
            point,
            is_fitted(point),
            estimate_run(point, facts[point.name], constants).images_per_second_evaluated,
            f"libtpu {facts[point.name].versions['libtpu']}",
        )
        for point in POINTS
        if point.name in facts
    )
    missing = tuple(point.name for point in POINTS if point.name not in facts)
    return Check(points, missing, _beside(facts, constants))


def _beside(facts: dict[str, Compiled], constants: Constants) -> Beside | None:
    if _PODIUM not in facts:
        return None
    podium, peer = (
        estimate(_PAPER.recipe, _PAPER.pod, facts[name], constants=constants).images_per_second
        for name in (_PODIUM, _PAPER.name)
    )
    return Beside(podium, peer)


def _compile_all(stage: Stage) -> dict[str, Compiled]:
    if libtpu.libtpu_version() is None:
        raise UserError("--fresh compiles, and libtpu is not installed; make install EXTRAS=plan brings it")
    programs: list[tuple[str, Recipe | Peer, Pod]] = [(point.name, point.peer, point.pod) for point in POINTS]
    programs.append((_PODIUM, _PAPER.recipe, _PAPER.pod))
    facts = {}
    for name, program, pod in programs:
        stage(f"compiling {name}")
        found = libtpu.compiled(program, pod, stage, fresh=True)
        assert found is not None  # libtpu is there, and no point is a GPU's
        facts[name] = found
    keep(facts)
    return facts


def estimate_run(point: Point, facts: Compiled, constants: Constants = CONSTANTS) -> Estimate:
    """The published run, by what was compiled of its peer."""
    if point.sharded_update:
        # Every core updates its share. A scatter and a gather carry what a whole sum does, so wires cost the same.
        program = facts.program
        share = program.update_cycles // point.pod.cores
        sharded = replace(program, cycles=program.cycles - program.update_cycles + share, update_cycles=share)
        facts = replace(facts, program=sharded)
    return estimate(point.recipe, point.pod, facts, constants=constants)


def summary(results: Sequence[Checked]) -> dict[str, dict[str, float]]:
    def of(chosen: Sequence[Checked]) -> dict[str, float]:
        errors = [abs(r.error) for r in chosen]
        return {"median_error": statistics.median(errors), "worst_error": max(errors), "points": len(errors)}

    return {
        "all": of(results),
        "fitted": of([r for r in results if r.fitted]),
        "tested": of([r for r in results if not r.fitted]),
    }


def fit(facts: dict[str, Compiled], points: Sequence[Point]) -> Constants:
    """The cycle factor and the common memory's gain that leave the smallest sum of squared log errors on `points`.

    Two unknowns and a handful of points: a grid, refined four times, is exact enough and cannot get lost."""

    def loss(factor: float, gain: float) -> float:
        constants = replace(CONSTANTS, cycle_factor=factor, common_memory_gain=gain)
        planned = [estimate_run(p, facts[p.name], constants).images_per_second_evaluated for p in points]
        ratios = [rate / p.images_per_second for rate, p in zip(planned, points, strict=True)]
        return float(np.square(np.log(ratios)).sum())

    low, high = np.array([0.3, 0.5]), np.array([2.0, 4.0])
    for _ in range(5):
        axes = np.linspace(low, high, 13).T
        best = np.array(min(((f, g) for f in axes[0] for g in axes[1]), key=lambda pair: loss(*pair)))
        low, high = best - (high - low) / 6, best + (high - low) / 6
    return replace(CONSTANTS, cycle_factor=float(best[0]), common_memory_gain=float(best[1]))


def to_json(found: Check) -> dict[str, Any]:
    points = [
        {
            **vars(result.point),
            "fitted": result.fitted,
            "predicted": result.predicted,
            "error": result.error,
            "compiled_with": result.compiled_with,
        }
        for result in found.points
    ]
    beside = {**vars(found.beside), "gain": found.beside.gain} if found.beside else None
    return {
        "points": points,
        "not_compiled": list(found.not_compiled),
        **summary(found.points),
        "papers_pod": beside,
    }
