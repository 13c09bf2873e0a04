"""Chooses what a recipe's `reduce = auto` means when a run starts: over sockets by a measurement, which the run
directory remembers. Sums in a different order round differently, so a run that resumes keeps the order it started with.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from podium.host.files import reporting, write_atomic
from podium.processes import agree
from podium.recipe.schema import Recipe
from podium.reduce import fastest, plan_buckets
from podium.step.update import TORUS_AXES, bucket_size_bytes


def choose_reduction(recipe: Recipe, mesh: Mesh, params: Any, *, run: Path) -> Recipe:
    """The recipe with the reduction that this run uses here. `params` needs only shapes."""
    if recipe.reduce != "auto":
        return recipe
    file = run / "reduction.json"
    here = {"mesh": list(mesh.devices.shape), "bucket_mb": recipe.bucket_mb}
    before = agree.on_first(lambda: json.loads(file.read_text()) if file.exists() else {})
    if before and before["here"] == here:
        return replace(recipe, reduce=before["reduce"])
    sizes = plan_buckets(params, bucket_size_bytes(recipe)).sizes
    chosen: Any = fastest(TORUS_AXES, sizes, mesh)
    agree.on_first(reporting(file)(lambda: write_atomic(file, json.dumps({"here": here, "reduce": chosen}))))
    return replace(recipe, reduce=chosen)
