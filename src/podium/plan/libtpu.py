"""Compiled facts about a step on a pod, a recipe's or a peer's: from the cache, or compiled in a worker process with
libtpu. The key is everything that decides the program: the recipe, the pod, the versions and the sources of the step.
Without libtpu nothing here fails; `compiled` gives None, and the plan counts instead.
"""

import hashlib
import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from podium.errors import UserError
from podium.host.files import write_atomic
from podium.host.paths import cache_directory
from podium.plan import worker
from podium.plan.hlo import Collective, Program
from podium.plan.machines import Pod
from podium.plan.operations import Operations, operations_from_json
from podium.plan.peer import Peer
from podium.recipe.reading import to_dict
from podium.recipe.schema import Recipe

# What libtpu needs to describe a pod on a machine that has none, without asking a metadata server or writing logs.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no device is opened, so two plans need not wait for each other
}
# What decides the program besides its settings, and what reads it. A module that moves must move here as well.
_STEP_SOURCES = ("models/*.py", "optim/*.py", "reduce/*.py", "step/*.py", "mesh.py")
_PEER_SOURCES = ("plan/peer_step.py", "mesh.py")
_READERS = ("plan/hlo.py", "plan/operations.py")

Stage = worker.Stage


@dataclass(frozen=True)
class Compiled:
    """A compiled step, per core."""

    program: Program
    flops: float
    bytes_accessed: float
    memory_bytes: int
    compile_seconds: float
    trace_seconds: float
    versions: dict[str, str]
    key: str
    operations: Operations | None = None  # by groups; left out of what is shipped
    earlier: bool = False  # read from a cache, not compiled now


class DoesNotFit(Exception):
    """The compiler ran out of a core's memory."""

    def __init__(self, needed_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"needs {needed_bytes:,} bytes of {limit_bytes:,}")
        self.needed_bytes, self.limit_bytes = needed_bytes, limit_bytes


def libtpu_version() -> str | None:
    try:
        return metadata.version("libtpu")
    except metadata.PackageNotFoundError:
        return None


def program_recipe(recipe: Recipe) -> Recipe:
    """The recipe without what does not change one step's program, so that such changes need no new compilation."""
    return replace(
        recipe,
        name="plan",
        torus="auto",
        seed=0,
        steps_per_dispatch=1,
        log_every_steps=1,
        evaluate_every_epochs=1.0,
        model=replace(recipe.model, classes=recipe.model.classes or 1000),
        data=replace(recipe.data, cache="auto", cache_gb=0.0, threads=0),
    )


def versions() -> dict[str, str]:
    return {"jax": metadata.version("jax"), "libtpu": libtpu_version() or "none", "flax": metadata.version("flax")}


def key_of(program: Recipe | Peer, pod: Pod) -> str:
    sources = _PEER_SOURCES if isinstance(program, Peer) else _STEP_SOURCES
    parts = [_settings(program), str(pod), versions(), worker.hash_of(sources), worker.hash_of(_READERS)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]


def compiled(
    program: Recipe | Peer, pod: Pod, stage: Stage, *, text_file: Path | None = None, fresh: bool = False
) -> Compiled | None:
    """None without libtpu or for GPUs; `fresh` compiles whatever the cache has, and `text_file` gets the compiler's own
    text. Raises DoesNotFit where the compiler runs out of memory."""
    if libtpu_version() is None or pod.chip.is_gpu:
        return None
    key = key_of(program, pod)
    file = cache_directory() / "plan" / f"{key}.json"
    if not fresh and text_file is None and file.exists():
        answer, earlier = json.loads(file.read_text()), True
    else:
        answer, earlier = _run_worker(program, pod, stage, text_file=text_file), False
        if "result" in answer or answer.get("out_of_memory"):
            _write(file, answer)
    if "result" in answer:
        return replace(from_json({"versions": versions(), "key": key, **answer["result"]}), earlier=earlier)
    if memory := answer.get("out_of_memory"):
        raise DoesNotFit(memory["needed"], memory["limit"] or pod.chip.memory_bytes_per_core)
    name = "the peer" if isinstance(program, Peer) else program.name
    raise UserError(f"the TPU compiler refused {name} on {pod}: {_first_line(answer['failed'])}")


def _settings(program: Recipe | Peer) -> dict[str, Any]:
    """What a worker is told, in JSON types."""
    if isinstance(program, Peer):
        return {"peer": asdict(program)}
    return {"recipe": to_dict(program_recipe(program))}


def from_json(table: dict[str, Any]) -> Compiled:
    program = Program(
        table["cycles"],
        table["update_cycles"],
        table["unpriced_bytes"],
        tuple(_collective(entry) for entry in table["collectives"] for _ in range(entry.get("count", 1))),
    )
    names = ("flops", "bytes_accessed", "memory_bytes", "compile_seconds", "trace_seconds", "versions", "key")
    operations = operations_from_json(table["operations"]) if "operations" in table else None
    return Compiled(program, operations=operations, **{name: table[name] for name in names})


def to_json(compiled: Compiled) -> dict[str, Any]:
    """Plain JSON types, equal collectives told once with their count; `from_json` gives the same facts back."""
    table = asdict(replace(compiled, operations=None))
    del table["earlier"], table["operations"]
    counts = Counter(compiled.program.collectives)
    collectives = [{**asdict(collective), "count": count} for collective, count in counts.items()]
    return {**table.pop("program"), **table, "collectives": collectives}


def _collective(entry: dict[str, Any]) -> Collective:
    tuples = {name: tuple(map(tuple, entry[name])) for name in ("rings", "axes_of_colours")}
    return Collective(**{name: value for name, value in entry.items() if name != "count"} | tuples)


def worker_environment(pod: Pod) -> dict[str, str]:
    """For a process that compiles for `pod`."""
    return {**os.environ, **_ENVIRONMENT, "TPU_ACCELERATOR_TYPE": f"{pod.chip.name}-{pod.cores}"}


def _run_worker(program: Recipe | Peer, pod: Pod, stage: Stage, *, text_file: Path | None) -> dict[str, Any]:
    """Asks a process of its own, and returns its last word: a result, or why there is none."""
    request = {
        **_settings(program),
        "topology": str(pod),
        "text_file": str(text_file) if text_file else None,
    }
    return worker.ask("podium.plan.libtpu_worker", request, worker_environment(pod), stage=stage)


def _write(file: Path, answer: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, json.dumps(answer))


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0][:300]
