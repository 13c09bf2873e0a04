"""Compiled facts about a step on a GPU cluster: from the cache, or compiled in a worker process with XLA's own GPU
compiler, which comes with JAX's CUDA plugin (the extra `plan-gpu`) and needs no GPU. Without it nothing here fails;
`compiled` gives None, and the plan counts instead.
"""

import hashlib
import json
import os
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from podium.errors import UserError
from podium.host.files import write_atomic
from podium.host.paths import cache_directory
from podium.plan import worker
from podium.plan.cuda_target import CARDS
from podium.plan.gpu_hlo import GpuProgram, program_from_json, program_to_json
from podium.plan.libtpu import program_recipe
from podium.plan.machines import Pod
from podium.plan.worker import Stage
from podium.recipe.reading import to_dict
from podium.recipe.schema import Recipe

_PLUGINS = ("jax-cuda12-pjrt", "jax-cuda13-pjrt")
# What decides the program besides its settings, and what reads it. A module that moves must move here as well.
_SOURCES = ("models/*.py", "optim/*.py", "reduce/*.py", "step/*.py", "mesh.py")
_READERS = ("plan/gpu_hlo.py", "plan/gpus.toml", "plan/cuda_*.py")
_ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}


@dataclass(frozen=True)
class GpuCompiled:
    """A compiled step, on one GPU."""

    program: GpuProgram
    memory_bytes: int  # without cuDNN's workspaces, which are chosen on the card
    donated_bytes: int
    compile_seconds: float
    versions: dict[str, str]
    earlier: bool = False  # read from a cache, not compiled now


def plugin_version() -> str | None:
    for name in _PLUGINS:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return None


def versions() -> dict[str, str]:
    return {"jax": metadata.version("jax"), "plugin": plugin_version() or "none", "flax": metadata.version("flax")}


def compiled(
    recipe: Recipe, pod: Pod, stage: Stage, *, text_file: Path | None = None, fresh: bool = False
) -> GpuCompiled | None:
    """None without the plugin, or for a card that nobody has described to it."""
    if plugin_version() is None or pod.chip.name not in CARDS:
        return None
    request = {
        "recipe": to_dict(program_recipe(recipe)),
        "topology": str(pod),
        "text_file": str(text_file) if text_file else None,
    }
    key = [request["recipe"], str(pod), versions(), worker.hash_of(_SOURCES + _READERS)]
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]
    file = cache_directory() / "plan" / f"{name}.json"
    if not fresh and text_file is None and file.exists():
        return replace(from_json(json.loads(file.read_text())), earlier=True)
    answer = worker.ask("podium.plan.cuda_worker", request, {**os.environ, **_ENVIRONMENT}, stage=stage)
    if "result" not in answer:
        why = answer["failed"].strip().splitlines()[0][:300]
        raise UserError(f"the GPU compiler refused {recipe.name} on {pod}: {why}")
    result = {**answer["result"], "versions": versions()}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, json.dumps(result))
    return from_json(result)


def from_json(table: dict[str, Any]) -> GpuCompiled:
    return GpuCompiled(**{**table, "program": program_from_json(table["program"])})


def to_json(facts: GpuCompiled) -> dict[str, Any]:
    """`from_json` gives the same facts back, of an earlier compilation."""
    table = {name: value for name, value in vars(facts).items() if name != "earlier"}
    return {**table, "program": program_to_json(facts.program)}
