"""A checkpoint that Podium 0.1.0 wrote (`checkpoint_0_1_0`): it opens, and training resumes as 0.1.0 went on."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from tests.support.small_runs import small_recipe

from podium import models
from podium.mesh import build_mesh
from podium.recipe.torus import Shape, lay_out
from podium.step.programs import build_step
from podium.train.checkpoint import Checkpoints

# Steps 4 to 6, as 0.1.0 went on from its checkpoint of step 3.
LOSSES = (1.1361262798309326, 1.1242326498031616, 1.457848072052002)


def tiny_network(recipe):
    norm = models.build_norm(recipe.model)

    class Tiny(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(3, 4, (3, 3), 2, use_bias=False, rngs=rngs)
            self.norm = norm(4, rngs=rngs)
            self.classifier = nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, x):
            return self.classifier(nnx.relu(self.norm(self.conv(x))).mean((1, 2)))

    return Tiny


def batches(step):
    rng = np.random.default_rng(0)
    for _ in range(6):
        image = rng.integers(0, 256, (1, 16, 16, 16, 3), dtype=np.uint8)
        label = rng.integers(0, 3, (1, 16), dtype=np.int32)
        yield jax.device_put({"image": image, "label": label}, step.train_batches)


@pytest.mark.parametrize("weight_update", ["replicated", "joined", "sharded", "flat"])
def test_a_checkpoint_of_0_1_0_resumes_as_it_went_on_then(tmp_path, weight_update):
    run = shutil.copytree(Path(__file__).parent / "checkpoint_0_1_0", tmp_path / "run")
    lars = {"name": "lars", "learning_rate": 2.0, "trust": 0.02}
    recipe = small_recipe(optimizer=lars, weight_update=weight_update).for_data(3, 96, 22)
    step = build_step(recipe, build_mesh(lay_out(Shape(1, 2), 16, 8), jax.devices()[:2]), tiny_network(recipe))
    with Checkpoints(run) as checkpoints:
        assert checkpoints.newest_good() == 3
        state = checkpoints.restore(3, step)
    assert int(state.step) == 3
    assert all(np.any(leaf) for leaf in jax.tree.leaves(state.slots))
    losses = []
    for batch in list(batches(step))[3:]:
        state, metrics = step.train(state, batch)
        losses.append(float(metrics["loss"][0]))
    np.testing.assert_allclose(losses, LOSSES, rtol=1e-4)
