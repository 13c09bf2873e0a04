"""What the real TPU compiler makes of a sharded update on v3:4x4: scatters and gathers along one ring after the other,
and no sum of all gradients on all chips."""

import subprocess
import sys

import pytest

from podium.plan.hlo import Collective, read_program
from podium.plan.libtpu import worker_environment
from podium.plan.machines import parse_pod

_PROGRAM = """
import sys
import jax, jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import PartitionSpec as P
from podium import optim
from podium.mesh import AXES, build_mesh, in_wire_order
from podium.recipe.reading import load_recipe
from podium.recipe.torus import Shape, lay_out
from podium.step.state import State
from podium.step.update import build_update

devices = in_wire_order(topologies.get_topology_desc("v3:4x4", "tpu").devices)
mesh = build_mesh(lay_out(Shape(4, 4, 2), 512, 128), devices)
sets = ["batch_global=512", "weight_update=sharded", f"gradient_sum={sys.argv[1]}"]
update = build_update(load_recipe("resnet50-32k", sets), mesh, (None, None))

def start():
    params = {"conv": jnp.zeros((3, 3, 512, 512)), "stem": jnp.zeros((7, 7, 3, 64)), "bias": jnp.zeros(1000)}
    return State(jnp.zeros((), jnp.int32), params, (), optim.zero_slots(update.rule, params))

def step(state):
    gradients = jax.tree.map(lambda w: jax.lax.pcast(w + 1, AXES, to="varying"), state.params)
    return update(state, gradients, jnp.float32(0.1), others=jax.lax.pcast(jnp.zeros(8), AXES, to="varying")).state

resumed = jax.shard_map(update.resumed, mesh=mesh, in_specs=P(), out_specs=update.specs)
state = jax.eval_shape(resumed, jax.eval_shape(start))
run = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(update.specs,), out_specs=update.specs))
print(run.lower(state).compile().as_text())
"""


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize(("wire", "bytes_per_number"), [("fp32", 4), ("bf16", 2)])
def test_gradients_are_scattered_ring_by_ring_and_weights_gathered_back(wire, bytes_per_number):
    command = [sys.executable, "-c", _PROGRAM, wire]
    ended = subprocess.run(command, capture_output=True, text=True, env=worker_environment(parse_pod("v3:4x4")))
    assert ended.returncode == 0, ended.stderr
    collectives = read_program(ended.stdout).collectives
    numbers = 3 * 3 * 512 * 512

    def of(kind: str) -> list[Collective]:
        return [c for c in collectives if c.kind == kind and c.whole_bytes > 100_000]

    assert [c.cores for c in of("reduce-scatter")] == [2, 4, 4]
    assert [c.cores for c in of("all-gather")] == [4, 4, 2]
    assert not of("all-reduce")
    # Every phase moves what the one before has left, and rows that fill up are few.
    for scatter, share in zip(of("reduce-scatter"), (1, 2, 8), strict=True):
        assert 1 <= scatter.whole_bytes * share / (numbers * bytes_per_number) < 1.1
    assert 1 <= of("all-gather")[-1].bytes / (numbers * 4) < 1.1
