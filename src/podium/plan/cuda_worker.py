"""Compiles one training step for a described GPU cluster, in a process of its own (`worker`). It needs JAX's CUDA
plugin, and no GPU. A card for which XLA has no estimates (A100) is compiled twice: as it is, and, for the prices alone,
as a Hopper card with its figures.
"""

import json
import sys
import time
from typing import Any, TextIO

import jax
from jax.experimental import topologies

from podium.mesh import build_mesh, in_wire_order
from podium.plan.cuda_target import target_config
from podium.plan.gpu_hlo import Peaks, prices_of, program_to_json, read_gpu_program
from podium.plan.libtpu_worker import memory_bytes
from podium.plan.machines import parse_pod
from podium.recipe.reading import from_dict
from podium.recipe.torus import lay_out
from podium.step.programs import batch_shapes, build_step

_ESTIMATES = {"xla_gpu_collect_cost_model_stats": True}
_WITHOUT_ESTIMATES = ("a100",)


def main(given: TextIO, told: TextIO) -> None:
    request = json.load(given)

    def say(**message: Any) -> None:
        print(json.dumps(message), file=told, flush=True)

    pod = parse_pod(request["topology"])
    priced = pod.chip.name not in _WITHOUT_ESTIMATES
    began = time.perf_counter()
    say(stage=f"compiling the training step for {pod}; about ten seconds")
    try:
        compiled = _compile(request, hopper=False, options=_ESTIMATES if priced else {})
        text = compiled.as_text()
        prices = None
        if not priced:
            say(stage="asking for prices; about ten seconds")
            prices = prices_of(_compile(request, hopper=True, options=_ESTIMATES).as_text())
    except jax.errors.JaxRuntimeError as error:
        say(failed=str(error))
        return
    seconds = time.perf_counter() - began
    if request.get("text_file"):
        with open(request["text_file"], "w") as file:
            file.write(text)
    peaks = Peaks(pod.chip.bf16_flops, pod.chip.memory_bandwidth)
    program = read_gpu_program(text, peaks, gpus_per_host=pod.shape[1], prices=prices)
    memory = compiled.memory_analysis()
    say(
        result={
            "program": program_to_json(program),
            "memory_bytes": memory_bytes(memory),
            "donated_bytes": memory.alias_size_in_bytes,
            "compile_seconds": seconds,
        }
    )


def _compile(request: dict[str, Any], *, hopper: bool, options: dict[str, Any]) -> Any:
    """The step on devices as the plugin describes them: one partition for each host, as in a live cluster."""
    pod, recipe = parse_pod(request["topology"]), from_dict(request["recipe"])
    target, shape = target_config(pod.chip.name, hopper=hopper), f"{pod.shape[0]}x1x{pod.shape[1]}"
    described = topologies.get_topology_desc(platform="cuda", target_config=target, topology=shape)
    torus = lay_out(pod.grid, recipe.batch_global, recipe.model.norm_span)
    step = build_step(recipe, build_mesh(torus, in_wire_order(described.devices)))
    lowered = step.train.lower(jax.eval_shape(step.init), batch_shapes(recipe, step, steps=1))
    return lowered.compile(compiler_options=options)


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
