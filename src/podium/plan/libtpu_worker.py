"""Compiles one training step for a described pod, in a process of its own: libtpu reads its settings from the
environment at start, prints what it likes, and can be ended while it compiles. Run by `libtpu`, which sends the
request as JSON on stdin and reads lines of JSON: the stage that began, then the result or the compiler's complaint.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

import jax
from jax.experimental import topologies

from podium.mesh import build_mesh, in_wire_order
from podium.plan.hlo import read_program
from podium.plan.machines import parse_pod
from podium.plan.operations import read_operations
from podium.plan.peer import peer_from_json
from podium.plan.peer_step import build_peer
from podium.recipe.reading import from_dict
from podium.recipe.torus import lay_out
from podium.step.programs import batch_shapes, build_step


def main(given: TextIO, told: TextIO) -> None:
    request = json.load(given)

    def say(**message: Any) -> None:
        print(json.dumps(message), file=told, flush=True)

    say(stage=f"tracing the training step for {request['topology']}")
    began = time.perf_counter()
    lowered = _lower(request)
    traced = time.perf_counter()
    say(stage="compiling; a minute or two on two CPU cores")
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        say(failed=str(error), out_of_memory=out_of_memory(str(error)))
        return
    seconds = {"trace_seconds": traced - began, "compile_seconds": time.perf_counter() - traced}
    if request.get("text_file"):
        with open(request["text_file"], "w") as file:
            file.write(compiled.as_text())
    say(result={**_facts(compiled), **seconds})


def _lower(request: dict[str, Any]) -> Any:
    """The step that was asked for, traced for the described pod."""
    pod = parse_pod(request["topology"])
    # On a v4 the two cores of a chip run as one, as on Google's cloud.
    options = {"chip_config_name": "megacore"} if pod.chip.name == "v4" else {}
    devices = in_wire_order(topologies.get_topology_desc(str(pod), "tpu", **options).devices)

    def mesh_for(batch_global: int, norm_span: int) -> Any:
        return build_mesh(lay_out(pod.grid, batch_global, norm_span), devices)

    return (_lower_peer if "peer" in request else _lower_recipe)(request, mesh_for)


def _lower_recipe(request: dict[str, Any], mesh_for: Callable[[int, int], Any]) -> Any:
    recipe = from_dict(request["recipe"])
    step = build_step(recipe, mesh_for(recipe.batch_global, recipe.model.norm_span))
    return step.train.lower(jax.eval_shape(step.init), batch_shapes(recipe, step, steps=1))


def _lower_peer(request: dict[str, Any], mesh_for: Callable[[int, int], Any]) -> Any:
    peer = peer_from_json(request["peer"])
    # Where the whole batch shares its statistics, any tiles will do: the peer then names all axes.
    step = build_peer(peer, mesh_for(peer.batch_global, peer.norm_span or 1))
    return step.train.lower(*step.arguments)


def _facts(compiled: Any) -> dict[str, Any]:
    text, costs = compiled.as_text(), compiled.cost_analysis()
    return {
        **asdict(read_program(text)),
        "operations": asdict(read_operations(text)),
        "flops": costs.get("flops", 0.0),
        "bytes_accessed": costs.get("bytes accessed", 0.0),
        "memory_bytes": memory_bytes(compiled.memory_analysis()),
    }


def memory_bytes(memory: Any) -> int:
    """What one core must hold at once: arguments, results that do not replace them, working memory and code."""
    return int(
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.generated_code_size_in_bytes
    )


def out_of_memory(message: str) -> dict[str, int] | None:
    """'… Used 20.01G of 15.48G hbm …' → bytes needed and there; None if that was not the trouble."""
    found = re.search(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm", message)
    if found is None:
        return {"needed": 0, "limit": 0} if "RESOURCE_EXHAUSTED" in message else None
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}
    return {
        "needed": round(float(found[1]) * unit[found[2]]),
        "limit": round(float(found[3]) * unit[found[4]]),
    }


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
