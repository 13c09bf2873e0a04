"""Gradients of strided convolutions in the step that is traced for a TPU: places apart where that gains, else as the
compiler has them, with zeros between."""

import subprocess
import sys

import pytest

from podium.plan.libtpu import worker_environment
from podium.plan.machines import parse_pod

_PROGRAM = """
import sys
import jax
from jax.experimental import topologies
from podium.mesh import build_mesh, in_wire_order, natural_shape
from podium.recipe.reading import load_recipe
from podium.recipe.torus import lay_out
from podium.step.programs import batch_shapes, build_step

recipe = load_recipe("demo", ["batch_global=64", "model.norm_span=8", "model.classes=10"])
for pod in sys.argv[1:]:
    devices = in_wire_order(topologies.get_topology_desc(pod, "tpu").devices)
    step = build_step(recipe, build_mesh(lay_out(natural_shape(devices), 64, 8), devices))
    text = step.train.lower(jax.eval_shape(step.init), batch_shapes(recipe, step, steps=1)).as_text()
    print(pod, "with zeros" if "lhs_dilate = [2" in text else "apart")
"""


@pytest.mark.slow
def test_only_a_v3_treats_places_apart():
    command = [sys.executable, "-c", _PROGRAM, "v3:2x2", "v5e:2x2"]
    ended = subprocess.run(command, capture_output=True, text=True, env=worker_environment(parse_pod("v3:2x2")))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["v3:2x2 apart", "v5e:2x2 with zeros"]
