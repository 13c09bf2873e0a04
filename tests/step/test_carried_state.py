"""What a step carries besides weights: dropout that no number of chips can change, and a network's own state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.step.test_programs import BATCH, CLASSES, SIZE, batches, programs, run, small_recipe

from podium import models
from podium.data.input import counter_rng
from podium.data.input.mixing import erased, mixes
from podium.errors import UserError
from podium.mesh import build_mesh
from podium.models.dropout import Draws, Dropout, whole_examples
from podium.recipe.torus import Shape, lay_out
from podium.step.programs import build_step

pytestmark = pytest.mark.slow

RATE = 0.5


class Counter(nnx.Variable):
    """State of a kind that Podium does not know."""


def noisy_network(r):
    """A convolution and a norm, one of Flax's dropouts used twice, stochastic depth, a counter and a mean."""
    norm = models.build_norm(r.model)

    class Noisy(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(3, 8, (3, 3), 2, use_bias=False, rngs=rngs)
            self.norm = norm(8, rngs=rngs)
            self.drop = nnx.List([nnx.Dropout(RATE, rngs=rngs)])
            self.depth = nnx.Dropout(0.25, broadcast_dims=(1, 2, 3), rngs=rngs)
            self.classifier = nnx.Linear(8, CLASSES, rngs=rngs)
            self.calls = Counter(jnp.zeros((), jnp.int32))
            self.brightness = Counter(jnp.zeros(3))

        def __call__(self, x):
            self.calls[...] += 1
            self.brightness[...] = 0.9 * self.brightness[...] + 0.1 * x.mean((0, 1, 2))
            y = nnx.relu(self.norm(self.conv(x)))
            y = self.drop[0](y + self.depth(y)).mean((1, 2))
            return self.classifier(self.drop[0](y))

    return Noisy


def trained(r, rows, cols):
    shape = Shape(rows, cols)
    mesh = build_mesh(lay_out(shape, BATCH, r.model.norm_span), jax.devices()[: shape.chips])
    step = build_step(r, mesh, noisy_network(r))
    state, losses = step.init(), []
    for batch in batches(step, count=4):
        state, metrics = step.train(state, batch)
        losses.append(np.asarray(metrics["loss"]))
    assert step.train._cache_size() == 1
    return np.concatenate(losses), jax.device_get(step.portable(state))


@pytest.fixture(scope="module")
def on_one_chip():
    return trained(small_recipe(average_decay=0.5), 1, 1)


@pytest.mark.parametrize(("rows", "cols", "accumulate", "update"), [(2, 2, 1, "sharded"), (1, 2, 2, "replicated")])
def test_dropout_and_own_state_are_the_same_on_any_chips_and_in_parts(on_one_chip, rows, cols, accumulate, update):
    losses, state = on_one_chip
    recipe = small_recipe(average_decay=0.5, accumulate=accumulate, weight_update=update)
    others, there = trained(recipe, rows, cols)
    np.testing.assert_allclose(others, losses, rtol=2e-5)
    for tree in ("params", "stats", "averaged"):
        for a, b in zip(*(jax.tree.leaves(getattr(s, tree)) for s in (there, state)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)
    assert int(there.stats["calls"][...]) == int(there.averaged["stats"]["calls"][...]) == 4
    assert there.stats["calls"][...].dtype == np.int32


def everything_on(rows, cols):
    """The losses of two steps of 64 images, with dropout, mixing, erasing, averages and parts of the batch."""
    n, keys = 64, counter_rng.key(0, np.arange(64))
    augment = {"mixup": 0.5, "cutmix": 1.0, "erasing": 0.5}
    r = small_recipe(
        batch_global=n, accumulate=2, average_decay=0.5, augment=augment, loss="binary",
        model={**vars(small_recipe().model), "norm_span": 2},
    )  # fmt: skip
    mesh = build_mesh(lay_out(Shape(rows, cols), n, 2), jax.devices()[: rows * cols])
    step, rng = build_step(r, mesh, noisy_network(r)), np.random.default_rng(0)
    batch: dict[str, np.ndarray] = {
        "image": rng.integers(0, 256, (2, n, SIZE, SIZE, 3), dtype=np.uint8),
        "label": rng.integers(0, CLASSES, (2, n), dtype=np.int32),
        "mix": np.stack([mixes(r.augment, keys, SIZE)] * 2),
        "erase": np.stack([erased(r.augment, keys, SIZE)] * 2),
    }
    state, losses = step.init(), []
    for k in range(2):
        one = jax.device_put({name: values[k : k + 1] for name, values in batch.items()}, step.train_batches)
        state, metrics = step.train(state, one)
        losses.append(np.asarray(metrics["loss"]))
    return np.concatenate(losses), jax.device_get(step.portable(state)).averaged


def test_with_everything_on_1_4_and_16_chips_train_alike():
    losses, averaged = everything_on(1, 1)
    for rows, cols in ((2, 2), (4, 4)):
        others, there = everything_on(rows, cols)
        np.testing.assert_allclose(others, losses, rtol=2e-5)
        for a, b in zip(jax.tree.leaves(there), jax.tree.leaves(averaged), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


def test_the_mean_that_a_network_keeps_is_of_the_whole_batch(on_one_chip):
    given = batches(programs(small_recipe(), 1, 1), count=4)
    images = [image for batch in given for image in np.asarray(batch["image"])]
    expected = np.zeros(3)
    for image in images:
        expected = 0.9 * expected + 0.1 * ((image / 255 - 0.5) / 0.25).mean((0, 1, 2))
    np.testing.assert_allclose(on_one_chip[1].stats["brightness"][...], expected, rtol=1e-4)


def test_draws_belong_to_examples_and_layers_and_keep_the_mean():
    keys = jax.vmap(lambda place: jax.random.fold_in(jax.random.key(0), place))(jnp.arange(2000))
    layer, x = Dropout(RATE), jnp.ones((2000, 4, 4, 8))
    layer.draws = Draws(keys)
    first, second = np.asarray(layer(x)), np.asarray(layer(x))
    assert set(np.unique(first)) == {0.0, 2.0}
    assert first.mean() == pytest.approx(1, abs=0.01)
    assert (first == second).mean() == pytest.approx(0.5, abs=0.01)  # another call, other draws
    layer.draws = Draws(keys[500:600])
    np.testing.assert_array_equal(layer(x[500:600]), first[500:600])  # whatever else is in the batch
    depth = whole_examples(0.25)
    depth.draws = Draws(keys)
    of_examples = np.asarray(depth(x)).reshape(2000, -1)
    np.testing.assert_array_equal(of_examples.min(1), of_examples.max(1))
    assert (of_examples[:, 0] > 0).mean() == pytest.approx(0.75, abs=0.03)
    depth.eval()
    np.testing.assert_array_equal(depth(x), x)


def test_dropout_outside_of_a_step_and_over_examples_is_refused():
    layer = Dropout(RATE)
    with pytest.raises(UserError, match=r"outside of one call \.eval\(\) first"):
        layer(jnp.ones((2, 3)))
    together = Dropout(RATE, together=(-2,))
    together.draws = Draws(jax.random.split(jax.random.key(0), 2))
    with pytest.raises(UserError, match="ties examples together"):
        together(jnp.ones((2, 3)))


def test_a_networks_own_generators_and_uneven_counters_are_refused():
    class Generator(nnx.Module):
        def __init__(self, rngs):
            self.rngs = rngs
            self.classifier = nnx.Linear(3, CLASSES, rngs=rngs)

        def __call__(self, x):
            return self.classifier(x.mean((1, 2)))

    class Uneven(nnx.Module):
        def __init__(self, rngs):
            self.classifier = nnx.Linear(3, CLASSES, rngs=rngs)
            self.bright = Counter(jnp.zeros((), jnp.int32))

        def __call__(self, x):
            self.bright[...] += (x > 0).sum()
            return self.classifier(x.mean((1, 2)))

    r = small_recipe()
    mesh = build_mesh(lay_out(Shape(1, 2), BATCH, 8), jax.devices()[:2])
    with pytest.raises(UserError, match=r"keeps random number generators.*nnx\.Dropout"):
        build_step(r, mesh, Generator)
    step = build_step(r, mesh, Uneven)
    with pytest.raises(UserError, match="state bright is of int32 and depends on a chip's own images; make"):
        step.train.lower(jax.eval_shape(step.init), next(batches(step)))


def test_a_recipes_dropout_and_stochastic_depth_train_alike_on_any_chips():
    r = small_recipe(model={**vars(small_recipe().model), "dropout": 0.3, "stochastic_depth": 0.5, "blur": True})
    losses, _ = run(r, 1, 1, own=False)
    others, _ = run(r, 2, 2, own=False)
    np.testing.assert_allclose(others, losses, rtol=2e-4)
    plain, _ = run(small_recipe(), 1, 1, own=False)
    assert abs(losses - plain).max() > 1e-3
    assert SIZE == 16
