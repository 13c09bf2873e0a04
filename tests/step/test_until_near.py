"""A TPU's step repeats itself where batch norm's means were far from the moving ones. Here CPU devices do, and are
compared with the step whose norms mend their sums one by one, which is tested against NumPy."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from podium import models, optim
from podium.mesh import batch_sharding, build_mesh
from podium.models.attempt import Attempt
from podium.recipe import torus
from podium.recipe.reading import from_dict
from podium.step.network import build_network
from podium.step.training import Training
from podium.step.update import build_update

pytestmark = pytest.mark.slow

BATCH, SIZE, CLASSES = 16, 8, 5


def recipe(update, span=8, accumulate=1):
    return from_dict({
        "epochs": 4, "batch_global": BATCH, "accumulate": accumulate, "steps_per_dispatch": 1,
        "weight_update": update, "precision": "fp32",
        "data": {"image_size": SIZE, "train_images": 320},
        "model": {"name": "resnet8", "stem": "conv3", "classes": CLASSES, "norm_span": span, "last_scale": 0.5},
        "optimizer": {"name": "lars", "learning_rate": 0.1},
        "schedule": {"decay": "polynomial", "warmup_epochs": 0.0},
    })  # fmt: skip


def three_norms(r):
    """A network that compiles sooner than resnet8, and whose later norms depend on the first."""
    norm = models.build_norm(r.model)

    class ThreeNorms(nnx.Module):
        def __init__(self, rngs):
            self.convs = nnx.List(nnx.Conv(n, 8, (3, 3), 2, use_bias=False, rngs=rngs) for n in (3, 8, 8))
            self.norms = nnx.List(norm(8, rngs=rngs) for _ in range(3))
            self.classifier = nnx.Linear(8, CLASSES, rngs=rngs)

        def __call__(self, x):
            for conv, norm in zip(self.convs, self.norms, strict=True):
                x = nnx.relu(norm(conv(x)))
            return self.classifier(x.mean((1, 2)))

    return ThreeNorms


@functools.cache
def program(r, *, repeats, optimizer=None, own=None):
    """The state before the first step, and that step on four chips."""
    mesh = build_mesh(torus.lay_out(torus.Shape(2, 2), BATCH, r.model.norm_span), jax.devices()[:4])
    network = build_network(r, mesh, own and own(r))
    update = build_update(r, mesh, jax.eval_shape(network.initial), own=optimizer)
    training = Training(r, network, optim.build_schedule(r), update, repeats=repeats)
    one = training.until_near if repeats else training.train_one
    shares, everywhere = batch_sharding(mesh).spec, jax.sharding.PartitionSpec()

    def step(state, batch):
        state, metrics = one(update.resumed(state), batch)
        return update.portable(state), metrics

    mapped = jax.shard_map(step, mesh=mesh, in_specs=(everywhere, shares), out_specs=everywhere)
    return training.start(), jax.jit(mapped)


def trained(r, moving_mean, **options):
    """The state and metrics after one step, from moving means that are all `moving_mean`."""
    start, step = program(r, **options)
    means = jax.tree.map_with_path(
        lambda path, s: s + moving_mean if "mean" in jax.tree_util.keystr(path) else s, start.stats
    )
    rng = np.random.default_rng(0)
    batch = {
        "image": rng.integers(0, 256, (BATCH, SIZE, SIZE, 3), dtype=np.uint8),
        "label": rng.integers(0, CLASSES, BATCH, dtype=np.int32),
    }
    return jax.device_get(step(replace(start, stats=means), batch))


@pytest.mark.parametrize(
    ("r", "moving_mean", "options"),
    [
        (recipe("replicated"), 0.0, {}),
        (recipe("replicated"), 3000.0, {}),
        (recipe("joined"), 3000.0, {"own": three_norms}),
        (recipe("joined", span=2), 3000.0, {"own": three_norms}),
        (recipe("sharded", span=2, accumulate=2), 3000.0, {"own": three_norms}),
        (recipe("replicated"), 3000.0, {"own": three_norms, "optimizer": optax.sgd(0.1, momentum=0.9)}),
    ],
    ids=[
        "near",
        "far",
        "far, joined",
        "far, several groups a chip, joined",
        "far, sharded, in parts",
        "far, own optimizer",
    ],
)
def test_a_repeated_step_is_the_step_whose_norms_mend_their_sums(r, moving_mean, options):
    want, got = (trained(r, moving_mean, repeats=repeats, **options) for repeats in (False, True))
    assert int(got[0].step) == 1
    for (path, a), b in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=jax.tree_util.keystr(path))


def test_what_is_not_a_number_is_not_far():
    """Else a run that diverges would repeat its steps, instead of saying so."""
    for mean, far in (([3.9, 0.0], False), ([4.1, 0.0], True), ([jnp.nan, 0.0], False)):
        attempt = Attempt(jnp.zeros(2))
        attempt.record(jnp.array(mean), jnp.ones(2))
        assert attempt.excess is not None
        assert bool((attempt.excess > 0).any()) is far
