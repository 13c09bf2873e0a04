"""Chooses what a recipe's `reduce = auto` means when a run starts: over sockets by a measurement, which the run
directory remembers. Sums in a different order round differently, so a run that resumes keeps the order it started with.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from podium.host.files import reporting
from podium.host.sealed import unseal, write_sealed
from podium.processes import agree
from podium.recipe.schema import Recipe
from podium.reduce import REDUCTIONS, fastest, links, plan_buckets
from podium.reduce.loads import Costs
from podium.step.sums import TORUS_AXES
from podium.step.update import bucket_size_bytes


def choose_reduction(recipe: Recipe, mesh: Mesh, params: Any, *, run: Path, note: Callable[[str], None]) -> Recipe:
    """The recipe with the reduction that this run uses here. `params` needs only shapes."""
    if recipe.reduce != "auto":
        return recipe
    file = run / "reduction.json"
    here = {"mesh": list(mesh.devices.shape), "bucket_mb": recipe.bucket_mb}
    before = agree.on_first(lambda: _before(file, note))
    if before.get("here") == here and before.get("reduce") in REDUCTIONS:
        links.use(Costs(**before.get("costs", {})))
        return replace(recipe, reduce=before["reduce"])
    sizes = plan_buckets(params, bucket_size_bytes(recipe)).sizes
    found = fastest(TORUS_AXES, sizes, mesh)
    if found.why:
        note(found.why)
    kept = {"here": here, "reduce": found.name, "costs": asdict(links.costs()), "why": found.why}
    agree.on_first(reporting(file)(lambda: write_sealed(file, kept)))
    name: Any = found.name
    return replace(recipe, reduce=name)


def _before(file: Path, note: Callable[[str], None]) -> dict[str, Any]:
    """What was chosen before, if anything was and can be read."""
    try:
        return unseal(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        note(f"{file} is damaged ({error}): measuring again; sums in a different order may round differently")
        return {}
