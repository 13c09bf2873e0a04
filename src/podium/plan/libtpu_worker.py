"""Compiles one recipe's training step for a described pod, in a process of its own: libtpu reads its settings from the
environment at start, prints what it likes, and can be ended while it compiles. Run by `compile`, which sends the
request as JSON on stdin and reads lines of JSON: the stage that began, then the result or the compiler's complaint.
"""

import json
import re
import sys
import time
from dataclasses import asdict
from typing import Any, TextIO


def main(given: TextIO, told: TextIO) -> None:
    request = json.load(given)

    def say(**message: Any) -> None:
        print(json.dumps(message), file=told, flush=True)

    say(stage="starting JAX")
    import jax
    from jax.experimental import topologies

    from podium.mesh import build_mesh, in_wire_order
    from podium.plan.hlo import read_program
    from podium.plan.machines import parse_pod
    from podium.recipe.reading import from_dict
    from podium.recipe.torus import Shape, lay_out
    from podium.step.programs import batch_shapes, build_step

    recipe, pod = from_dict(request["recipe"]), parse_pod(request["topology"])
    say(stage=f"describing {pod}")
    # On a v4 the two cores of a chip run as one, as on Google's cloud.
    options = {"chip_config_name": "megacore"} if pod.chip.name == "v4" else {}
    devices = in_wire_order(topologies.get_topology_desc(str(pod), "tpu", **options).devices)
    torus = lay_out(Shape(*pod.grid), recipe.batch_global, recipe.model.norm_span)
    mesh = build_mesh(torus, devices)
    say(stage="tracing the training step")
    began = time.perf_counter()
    step = build_step(recipe, mesh)
    lowered = step.train.lower(jax.eval_shape(step.init), batch_shapes(recipe, step.train_batches, steps=1))
    traced = time.perf_counter()
    say(stage=f"compiling for {pod.cores:,} cores; a minute or two on two CPU cores")
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        say(failed=str(error), out_of_memory=out_of_memory(str(error)))
        return
    done = time.perf_counter()
    text = compiled.as_text()
    if request.get("text_file"):
        with open(request["text_file"], "w") as file:
            file.write(text)
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis()
    say(
        result={
            **asdict(read_program(text)),
            "flops": costs.get("flops", 0.0),
            "bytes_accessed": costs.get("bytes accessed", 0.0),
            "memory_bytes": memory_bytes(memory),
            "trace_seconds": traced - began,
            "compile_seconds": done - traced,
        }
    )


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
