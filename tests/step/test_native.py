"""A whole step of native convolutions, batch norm and maxima beside XLA's own, on many chips."""

import jax
import numpy as np
import pytest
from flax import nnx
from tests.step.test_programs import BATCH, CLASSES, batches, small_recipe

from podium.mesh import build_mesh
from podium.models import build_norm, native
from podium.models.convolution import Conv
from podium.models.normalised import normalised
from podium.models.pool import max_pool
from podium.recipe.torus import Shape, lay_out
from podium.step.programs import build_step

pytestmark = pytest.mark.slow


def _network(recipe):
    """Of every kind of native operation one: Winograd's, a product, im2col, norm with ReLU, a maximum."""
    norm = build_norm(recipe.model)

    class Small(nnx.Module):
        def __init__(self, rngs):
            self.stem = Conv(3, 8, (3, 3), 2, padding="SAME", use_bias=False, rngs=rngs)
            self.wide = Conv(8, 16, (1, 1), padding="SAME", use_bias=False, rngs=rngs)
            self.near = Conv(16, 16, (3, 3), padding="SAME", use_bias=False, rngs=rngs)
            self.norm = norm(16, rngs=rngs)
            self.classifier = nnx.Linear(16, CLASSES, rngs=rngs)

        def __call__(self, x):
            x = max_pool(self.wide(self.stem(x)), "SAME")
            return self.classifier(normalised(self.norm, self.near(x)).mean((1, 2)))

    return Small


def _trained():
    recipe = small_recipe(optimizer={"name": "sgd", "learning_rate": 0.1})
    mesh = build_mesh(lay_out(Shape(4, 4), BATCH, recipe.model.norm_span), jax.devices())
    step = build_step(recipe, mesh, _network(recipe))
    state, losses = step.init(), []
    for batch in batches(step, count=4):
        state, metrics = step.train(state, batch)
        losses.append(np.asarray(metrics["loss"]))
    return np.concatenate(losses), jax.tree.leaves(jax.device_get(step.portable(state)))


def test_native_operations_train_as_xla_does_on_sixteen_chips():
    assert not native.missing
    losses, state = _trained()
    with native.left_to_xla():
        xla_losses, xla_state = _trained()
    np.testing.assert_allclose(losses, xla_losses, rtol=2e-5)
    for own, xla in zip(state, xla_state, strict=True):
        np.testing.assert_allclose(own, xla, rtol=1e-3, atol=1e-5)
    pairs = zip(state, xla_state, strict=True)
    assert any(not np.array_equal(own, xla) for own, xla in pairs), "both came from the same operations"
