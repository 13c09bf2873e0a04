"""The networks of pooled stages: their fixed first layer, their pooling, and what a stage computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from podium.errors import UserError
from podium.models import build_model, check
from podium.models.pool import halve
from podium.models.pooled import patch_filters
from podium.recipe.schema import Model


def build(name="resnet7-narrow", stem="patches", classes=10, dtype=jnp.float32):
    return build_model(Model(norm_span=2, name=name, stem=stem), classes, dtype, rngs=nnx.Rngs(0))


def test_patches_are_taken_apart_without_loss():
    parts = patch_filters()[..., :12].reshape(12, 12)  # [pixels and colours, parts]
    sizes = np.linalg.norm(parts, axis=0)
    np.testing.assert_allclose((parts / sizes).T @ (parts / sizes), np.eye(12), atol=1e-6)
    np.testing.assert_array_equal(patch_filters()[..., 12:], -patch_filters()[..., :12])


def test_halving_takes_the_largest_of_four_and_leaves_an_odd_edge_out():
    x = np.random.default_rng(0).normal(size=(2, 5, 7, 3)).astype(np.float32)
    expected = np.max([x[:, i : i + 4 : 2, j : j + 6 : 2] for i in (0, 1) for j in (0, 1)], axis=0)
    np.testing.assert_array_equal(halve(jnp.asarray(x)), expected)
    slope = jax.grad(lambda x: (halve(x) * 2).sum())(jnp.asarray(x))
    assert float(slope.sum()) == 2 * expected.size
    assert not np.asarray(slope)[:, 4:].any()


def test_a_stage_is_two_convolutions_the_second_residual():
    stage = build().stages[1]
    stage.eval()
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 15, 15, 16)), jnp.float32)
    widened = nnx.relu(halve(stage.widen(x)) / np.sqrt(1 + 1e-5))  # moving statistics start at 0 and 1
    refined = nnx.relu(stage.refine(widened) / np.sqrt(1 + 1e-5))
    np.testing.assert_allclose(stage(x), widened + refined, rtol=1e-4, atol=1e-5)


def test_a_plain_stage_passes_its_input_on_at_first():
    """Beside the channels that it adds, which are random and small."""
    stage = build("plain7-wide").stages[0]
    stage.eval()
    x = np.abs(np.random.default_rng(0).normal(size=(2, 8, 8, 24))).astype(np.float32)
    y = stage(jnp.asarray(x))
    np.testing.assert_allclose(y[..., :24], halve(jnp.asarray(x)) / (1 + 1e-5), rtol=1e-4)  # two norms by √(1 + ε)
    rest = stage.widen.kernel[...][..., 24:]
    assert float(jnp.std(rest)) == pytest.approx((3 * 9 * 24) ** -0.5, rel=0.05)
    assert not np.allclose(y[..., 24:], 0)


@pytest.mark.parametrize("name", ["resnet7", "resnet7-narrow", "plain7-wide"])
def test_logits_are_fp32_and_the_first_layer_learns_only_its_bias(name):
    model = nnx.eval_shape(lambda: build(name, classes=7, dtype=jnp.bfloat16))
    logits = nnx.eval_shape(lambda: build(name, classes=7, dtype=jnp.bfloat16)(jnp.ones((2, 32, 32, 3))))
    assert (logits.shape, logits.dtype) == ((2, 7), jnp.float32)
    assert not any(p.shape == patch_filters().shape for p in jax.tree.leaves(nnx.state(model, nnx.Param)))


@pytest.mark.parametrize(
    ("name", "stem", "use"), [("resnet7", "conv3", "use patches"), ("resnet8", "patches", "use conv7, .* or fold3")]
)
def test_a_stem_of_the_other_family_is_refused(name, stem, use):
    with pytest.raises(UserError, match=rf"model\.stem='{stem}' does not fit model\.name='{name}'; {use}"):
        check(Model(norm_span=2, name=name, stem=stem), 32)


def test_a_scale_that_no_block_has_is_refused():
    with pytest.raises(UserError, match=r"model\.last_scale=1 does nothing with model\.name='resnet7'; leave it out"):
        check(Model(norm_span=2, name="resnet7", stem="patches", last_scale=1.0), 32)
