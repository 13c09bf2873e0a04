"""Holds the planner against the world: throughputs that others measured and published, planned with the very recipe,
pod and batch. The two fitted constants are found on every second point and tested on the rest. The
compilations are kept beside this file, so the check runs without libtpu and says when they were made.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from podium.errors import UserError
from podium.plan import libtpu as compiling
from podium.plan.estimate import CONSTANTS, Constants, estimate
from podium.plan.libtpu import Stage
from podium.plan.machines import parse_pod
from podium.recipe.reading import load_recipe
from podium.recipe.schema import Recipe

_KEPT = Path(str(resources.files("podium"))) / "plan" / "published.json"


@dataclass(frozen=True)
class Point:
    """A published run; `images_per_second` includes its evaluations."""

    name: str
    topology: str
    batch_global: int
    norm_span: int
    epochs: float
    images_per_second: float
    source: str

    @property
    def recipe(self) -> Recipe:
        sets = [f"batch_global={self.batch_global}", f"model.norm_span={self.norm_span}", f"epochs={self.epochs}"]
        # From 1024 chips on, MLPerf's runs sharded the weight update, and gained by it; Podium replicates it on TPUs,
        # where this compiler makes full sums of the scatter and of the gather.
        return replace(load_recipe("resnet50-32k", sets), name=self.name)


# In the order in which they were published: first by generation, then by size. Every second one, from the first on, is
# for fitting; the rule was fixed before the first fit.
POINTS = (
    Point("v3-16", "v3:4x4", 4096, 128, 60, 31.2e3, "MLPerf 0.6"),
    Point("v3-64", "v3:8x8", 16384, 128, 64, 125e3, "MLPerf 0.6"),
    Point("v3-128", "v3:8x16", 32768, 128, 72, 242e3, "MLPerf 0.6"),
    Point("v3-256", "v3:16x16", 32768, 64, 72, 354e3, "MLPerf 0.6"),
    Point("v3-512", "v3:16x32", 32768, 32, 76, 738e3, "MLPerf 0.6"),
    Point("v3-1024", "v3:32x32", 32768, 128, 72, 1.30e6, "MLPerf 0.6"),
    Point("paper", "v3:32x32", 32768, 128, 90, 1.05e6, "arXiv 1811.06992"),
    Point("v3-4096", "v3:128x32", 65536, 64, 92, 4.7e6, "MLPerf 0.7"),
    Point("v4-2048", "v4:8x16x16", 32768, 64, 60, 4.7e6, "MLPerf 1.0"),
    Point("v4-3456", "v4:12x12x24", 55296, 64, 76, 8.0e6, "MLPerf 1.0"),
    Point("v4-4096", "v4:16x16x16", 32768, 64, 60, 7.6e6, "MLPerf 2.0"),
)


@dataclass(frozen=True)
class Checked:
    point: Point
    fitted: bool
    predicted: float
    compiled_with: str

    @property
    def error(self) -> float:
        return self.predicted / self.point.images_per_second - 1


def is_fitted(point: Point) -> bool:
    return POINTS.index(point) % 2 == 0


def kept() -> dict[str, compiling.Compiled]:
    """The compilations that come with Podium, by point."""
    tables = json.loads(_KEPT.read_text())
    return {name: replace(compiling.from_json(table), earlier=True) for name, table in tables.items()}


def keep(facts: dict[str, compiling.Compiled]) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(compiling.to_json(of_point))}" for name, of_point in facts.items()]
    _KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def check(stage: Stage, *, fresh: bool = False, constants: Constants = CONSTANTS) -> list[Checked]:
    """Every point, from the compilations at hand; `fresh` compiles them again with the libtpu that is installed."""
    if fresh and compiling.libtpu_version() is None:
        raise UserError("--fresh compiles, and libtpu is not installed; make install EXTRAS=plan brings it")
    earlier = kept()
    results = []
    for point in POINTS:
        recipe, pod = point.recipe, parse_pod(point.topology)
        if fresh:
            found = compiling.compiled(recipe, pod, stage, fresh=True)
            assert found is not None  # libtpu is there, and no point is a GPU's
            earlier[point.name] = found
        facts = earlier[point.name]
        planned = estimate(recipe, pod, facts, constants=constants).images_per_second_evaluated
        results.append(Checked(point, is_fitted(point), planned, f"libtpu {facts.versions['libtpu']}"))
    if fresh:
        keep(earlier)
    return results


def summary(results: Sequence[Checked]) -> dict[str, Any]:
    def of(chosen: Sequence[Checked]) -> dict[str, float]:
        errors = [abs(r.error) for r in chosen]
        return {"median_error": statistics.median(errors), "worst_error": max(errors), "points": len(errors)}

    return {
        "all": of(results),
        "fitted": of([r for r in results if r.fitted]),
        "tested": of([r for r in results if not r.fitted]),
    }


def fit(facts: dict[str, compiling.Compiled], points: Sequence[Point]) -> Constants:
    """The cycle factor and the common memory's gain that leave the smallest sum of squared log errors on `points`.

    Two unknowns and a handful of points: a grid, refined four times, is exact enough and cannot get lost."""

    runs = [(p.recipe, parse_pod(p.topology), facts[p.name]) for p in points]

    def loss(factor: float, gain: float) -> float:
        constants = replace(CONSTANTS, cycle_factor=factor, common_memory_gain=gain)
        estimates = [estimate(recipe, pod, of_point, constants=constants) for recipe, pod, of_point in runs]
        ratios = [e.images_per_second_evaluated / p.images_per_second for e, p in zip(estimates, points, strict=True)]
        return float(np.square(np.log(ratios)).sum())

    low, high = np.array([0.3, 0.5]), np.array([2.0, 4.0])
    for _ in range(5):
        axes = np.linspace(low, high, 13).T
        best = np.array(min(((f, g) for f in axes[0] for g in axes[1]), key=lambda pair: loss(*pair)))
        low, high = best - (high - low) / 6, best + (high - low) / 6
    return replace(CONSTANTS, cycle_factor=float(best[0]), common_memory_gain=float(best[1]))


def to_json(results: Sequence[Checked]) -> dict[str, Any]:
    points = [
        {
            **vars(result.point),
            "fitted": result.fitted,
            "predicted": result.predicted,
            "error": result.error,
            "compiled_with": result.compiled_with,
        }
        for result in results
    ]
    return {"points": points, **summary(results)}
