"""A ResNet's blur beside plain NumPy, also of columns side by side, and which of its blocks are dropped how often."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from podium.errors import UserError
from podium.models import build_model, check
from podium.models.dropout import Dropout
from podium.models.resnet import blurred
from podium.recipe.schema import Model


def test_a_blurred_value_is_the_weighed_mean_of_its_neighbours():
    x = np.random.default_rng(0).normal(size=(2, 6, 8, 5)).astype(np.float32)
    around = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    kernel = np.outer([1, 2, 1], [1, 2, 1]) / 16
    expected = sum(kernel[r, c] * around[:, r : r + 6, c : c + 8] for r in range(3) for c in range(3))
    np.testing.assert_allclose(blurred(jnp.asarray(x), 5), expected, atol=1e-6)
    pairs = x.reshape(2, 6, 4, 10)
    np.testing.assert_allclose(blurred(jnp.asarray(pairs), 5), expected, atol=1e-6)


def parts(**changes):
    model = Model(norm_span=8, name="resnet14", stem="conv3", classes=4, **changes)
    made = nnx.eval_shape(lambda: build_model(model, 4, jnp.float32, rngs=nnx.Rngs(0)))
    return made, {path: part.rate for path, part in nnx.iter_modules(made) if isinstance(part, Dropout)}


def test_later_blocks_are_dropped_more_often_up_to_the_last():
    made, rates = parts(stochastic_depth=0.5, dropout=0.3)
    assert rates.pop(("dropout",)) == 0.3
    assert rates == {("blocks", k, "drop"): pytest.approx(0.1 * k) for k in range(1, 6)}
    assert [block.blurs for block in made.blocks] == [False] * 6


def test_only_blocks_with_a_stride_blur_and_nothing_is_there_that_is_off():
    made, rates = parts(blur=True)
    assert rates == {}
    assert [block.blurs for block in made.blocks] == [False, False, True, False, True, False]


@pytest.mark.parametrize("change", [{"stochastic_depth": 0.1}, {"blur": True}])
def test_a_network_without_blocks_or_strides_refuses_them(change):
    with pytest.raises(UserError, match=f"model.{next(iter(change))}=.* does nothing with model.name='resnet7'"):
        check(Model(norm_span=8, name="resnet7", stem="patches", **change), 32)
