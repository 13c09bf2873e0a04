"""Holds the planner of GPU clusters against the world: MLPerf runs of ResNet-50, by the logs that their submitters
published (time from run_start to run_stop, epochs, batch, batch-norm span), planned with Podium's step on the same
cluster. Theirs is NVIDIA's for MXNet, which fuses more; the fitted constant takes that up. It is found on every second
point and tested on the rest. The compilations are kept beside this file, so the check runs without a GPU compiler.
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
from podium.plan import cuda
from podium.plan.cuda import GpuCompiled
from podium.plan.estimate import Origin, estimate
from podium.plan.gpu_estimate import CONSTANTS, GpuConstants, hidden_share, is_gradient_sum, parts
from podium.plan.machines import Pod, parse_pod
from podium.plan.worker import Stage
from podium.recipe.reading import load_recipe
from podium.recipe.schema import Recipe

FITTED = "fusion_factor"
_KEPT = Path(str(resources.files("podium"))) / "plan" / "gpu_published.json"


@dataclass(frozen=True)
class GpuPoint:
    """The median of a submission's runs."""

    name: str
    topology: str
    batch_global: int
    norm_span: int
    epochs: int
    images_per_second: float  # evaluations included
    source: str
    eager: bool = False  # before NVIDIA's submissions used CUDA graphs

    @property
    def pod(self) -> Pod:
        return parse_pod(self.topology)

    @property
    def recipe(self) -> Recipe:
        sets = [f"batch_global={self.batch_global}", f"model.norm_span={self.norm_span}", f"epochs={self.epochs}"]
        return replace(load_recipe("resnet50-32k", sets), name=self.name)


# In the order in which they were published, then by size. Every second one, from the first on, is for fitting; the list
# and the rule were fixed before the fit.
POINTS = (
    GpuPoint("a100-8-eager", "a100:1x8", 3264, 408, 41, 22.2e3, "MLPerf 0.7, NVIDIA", eager=True),
    GpuPoint("a100-16-eager", "a100:2x8", 3264, 204, 41, 36.9e3, "MLPerf 0.7, NVIDIA", eager=True),
    GpuPoint("a100-768-eager", "a100:96x8", 34560, 45, 59, 1.192e6, "MLPerf 0.7, NVIDIA", eager=True),
    GpuPoint("a100-64-large", "a100:8x8", 13056, 204, 45, 195.7e3, "MLPerf 1.0, NVIDIA"),
    GpuPoint("a100-8", "a100:1x8", 3264, 408, 35, 26.1e3, "MLPerf 2.0, NVIDIA"),
    GpuPoint("a100-16", "a100:2x8", 3264, 204, 35, 48.3e3, "MLPerf 2.0, H3C"),
    GpuPoint("a100-64", "a100:8x8", 3264, 51, 35, 166e3, "MLPerf 2.0, NVIDIA"),
    GpuPoint("a100-1024", "a100:128x8", 35840, 35, 60, 2.258e6, "MLPerf 2.0, NVIDIA"),
    GpuPoint("a100-4216", "a100:527x8", 67456, 32, 86, 5.771e6, "MLPerf 2.0, NVIDIA"),
    GpuPoint("h100-8", "h100:1x8", 3200, 400, 35, 54.9e3, "MLPerf 3.0, NVIDIA"),
    GpuPoint("h100-64", "h100:8x8", 3200, 50, 35, 280.4e3, "MLPerf 3.0, NVIDIA"),
    GpuPoint("h100-512", "h100:64x8", 20480, 40, 50, 2.143e6, "MLPerf 3.0, NVIDIA"),
    GpuPoint("h100-768", "h100:96x8", 32256, 42, 56, 3.237e6, "MLPerf 3.0, NVIDIA"),
    GpuPoint("h100-3584", "h100:448x8", 57344, 32, 77, 8.987e6, "MLPerf 3.0, NVIDIA"),
    GpuPoint("h100-16", "h100:2x8", 3200, 200, 35, 99.4e3, "MLPerf 3.1, Dell"),
    GpuPoint("h200-8", "h200:1x8", 3200, 400, 35, 62.2e3, "MLPerf 4.0, NVIDIA"),
    GpuPoint("h100-2528", "h100:316x8", 40448, 32, 66, 6.433e6, "MLPerf 4.0, NVIDIA"),
)


def is_fitted(point: GpuPoint) -> bool:
    return POINTS.index(point) % 2 == 0


def kept() -> dict[str, GpuCompiled]:
    """The compilations that come with Podium, by cluster and batch."""
    if not _KEPT.exists():
        return {}
    tables = json.loads(_KEPT.read_text())
    return {name: replace(cuda.from_json(table), earlier=True) for name, table in tables.items()}


def keep(facts: dict[str, GpuCompiled]) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(cuda.to_json(of_program))}" for name, of_program in facts.items()]
    _KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def program_of(point: GpuPoint) -> str:
    """Two points may have the same program."""
    return f"{point.topology} {point.batch_global} {point.norm_span}"


def planned(point: GpuPoint, facts: GpuCompiled, constants: GpuConstants = CONSTANTS) -> float:
    """Images/s of the published run, evaluations included."""
    of_step = parts(point.pod, facts, constants, eager=point.eager)
    return estimate(point.recipe, point.pod, of_step).images_per_second_evaluated


def check(constants: GpuConstants = CONSTANTS) -> list[dict[str, Any]]:
    """Every point whose compilation is at hand, with its error."""
    facts = kept()
    rows = []
    for point in POINTS:
        if (found := facts.get(program_of(point))) is None:
            continue
        rate = planned(point, found, constants)
        error = rate / point.images_per_second - 1
        sums = [c for c in found.program.collectives if is_gradient_sum(c, point.pod)]
        rows.append(
            {
                **vars(point),
                "fitted": is_fitted(point),
                "predicted": rate,
                "error": error,
                "kernels": found.program.whole.kernels,
                "memory_bytes": found.memory_bytes,
                "sums_hidden": hidden_share(sums, point.pod, constants),
            }
        )
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median and worst error of all points, of those for fitting and of those for testing."""
    parts = {
        "all": list(rows),
        "fitted": [row for row in rows if row["fitted"]],
        "tested": [row for row in rows if not row["fitted"]],
    }
    return {name: _errors([abs(row["error"]) for row in part]) for name, part in parts.items() if part}


def to_json(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The points and their errors, and what each figure is."""
    constants = {
        name: {"value": value, "origin": "fitted" if name == FITTED else Origin.ASSUMED}
        for name, value in vars(CONSTANTS).items()
    }
    origins = {
        "images_per_second": "published",
        "predicted": Origin.MODELLED,
        "kernels": Origin.COMPILED,
        "memory_bytes": Origin.COMPILED,
        "sums_hidden": Origin.MODELLED,
    }
    return {"points": list(rows), **summary(rows), "constants": constants, "origins": origins}


def _errors(errors: Sequence[float]) -> dict[str, float]:
    return {"median_error": statistics.median(errors), "worst_error": max(errors), "points": len(errors)}


def compile_all(stage: Stage, only: Sequence[str] = ()) -> dict[str, GpuCompiled]:
    """Compiles every point's program, or those of these names, again, and keeps them."""
    if cuda.plugin_version() is None:
        raise UserError("XLA's GPU compiler is not installed; make install EXTRAS=plan-gpu brings it")
    facts = kept()
    for point in POINTS:
        if only and point.name not in only:
            continue
        stage(f"compiling {point.name}")
        found = cuda.compiled(point.recipe, point.pod, stage)
        assert found is not None  # the plugin is there, and every card is described
        facts[program_of(point)] = found
        keep(facts)
    return facts


def fit(facts: dict[str, GpuCompiled], points: Sequence[GpuPoint]) -> GpuConstants:
    """The factor of fusions that leaves the smallest sum of squared log errors on `points`."""

    def loss(factor: float) -> float:
        constants = replace(CONSTANTS, fusion_factor=factor)
        ratios = [planned(p, facts[program_of(p)], constants) / p.images_per_second for p in points]
        return float(np.square(np.log(ratios)).sum())

    return replace(CONSTANTS, fusion_factor=min(np.linspace(0.3, 1.5, 241).tolist(), key=loss))
