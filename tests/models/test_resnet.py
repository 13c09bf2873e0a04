from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from podium.errors import UserError
from podium.models import build_model, build_norm, check
from podium.models.resnet import SHAPES, Layers, ResNet, Shape, space_to_depth
from podium.recipe.schema import Model


def model_settings(name, stem="conv7", span=2):
    return Model(norm_span=span, name=name, stem=stem)


def resnet(settings):
    """A network of ten classes, in float32."""
    model = build_model(settings, 10, jnp.float32, rngs=nnx.Rngs(0))
    assert isinstance(model, ResNet)
    return model


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # torchvision's models, 1000 classes
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
    ],
)
def test_the_imagenet_networks_have_the_known_sizes(name, parameters):
    shapes = nnx.eval_shape(lambda: build_model(model_settings(name), 1000, jnp.float32, rngs=nnx.Rngs(0)))
    assert sum(p.size for p in jax.tree.leaves(nnx.state(shapes, nnx.Param))) == parameters


def test_strides_sit_in_the_three_by_three_and_last_scales_start_at_zero(monkeypatch):
    monkeypatch.setitem(SHAPES, "short", Shape((1, 1), bottleneck=True))  # resnet50 is (3, 4, 6, 3)
    model = resnet(model_settings("short"))
    first_of_stage_two = model.blocks[1]
    assert [conv.kernel_size[0] for conv in first_of_stage_two.convs] == [1, 3, 1]
    assert [conv.strides for conv in first_of_stage_two.convs] == [1, 2, 1]
    for block in model.blocks:
        assert not np.asarray(block.norms[-1].scale[...]).any()
        assert np.asarray(block.norms[0].scale[...]).all()
    assert float(model.classifier.kernel[...].std()) == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(
    ("name", "stem", "size"),
    [("resnet8", "conv3", 32), ("resnet8", "conv7", 64), ("resnet8", "space_to_depth", 64), ("resnet8", "fold3", 32)],
)
def test_every_stem_gives_fp32_logits(name, stem, size):
    settings = model_settings(name, stem)
    logits = nnx.eval_shape(
        lambda: build_model(settings, 7, jnp.bfloat16, rngs=nnx.Rngs(0))(jnp.ones((2, size, size, 3)))
    )
    assert logits.shape == (2, 7)
    assert logits.dtype == jnp.float32


def test_the_folded_stem_is_a_six_by_six_convolution_of_stride_two():
    model = resnet(model_settings("resnet8", "fold3"))
    kernel = np.asarray(model.first.kernel[...])  # [3, 3, (2, 2, 3), 32]
    unfolded = kernel.reshape(3, 3, 2, 2, 3, 32).transpose(0, 2, 1, 3, 4, 5).reshape(6, 6, 3, 32)
    x = np.random.default_rng(0).normal(size=(2, 12, 12, 3)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (6, 6), (1, 2))[:, ::2, ::2]
    expected = np.einsum("nhwcij,ijco->nhwo", windows, unfolded)
    np.testing.assert_allclose(model.first(space_to_depth(jnp.asarray(x))), expected, rtol=1e-4, atol=1e-5)


def convolved(x, kernel, stride, before):
    """A convolution with `before` zeros at the start, and as many as it takes at the end, in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (before, 8), (before, 8), (0, 0)))
    side = kernel.shape[0]
    out = -(-x.shape[1] // stride)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), (1, 2))[:, ::stride, ::stride]
    return np.einsum("nhwcij,ijco->nhwo", windows[:, :out, :out], kernel)


# Zeros before the image: symmetric has half of the kernel, SAME half of what the last window lacks.
@pytest.mark.parametrize(
    ("padding", "kernel", "size", "before"),
    [
        ("symmetric", 7, 16, 3), ("symmetric", 7, 15, 3), ("symmetric", 3, 16, 1), ("symmetric", 3, 15, 1),
        ("same", 7, 16, 2), ("same", 7, 15, 3), ("same", 3, 16, 0), ("same", 3, 15, 1),
    ],
)  # fmt: skip
def test_strided_convolutions_are_padded_as_the_recipe_says(padding, kernel, size, before):
    layers = Layers(build_norm(model_settings("resnet8")), jnp.float32, padding)
    conv = layers.conv((3, 4), kernel, 2, rngs=nnx.Rngs(0))
    x = np.random.default_rng(1).normal(size=(2, size, size, 3)).astype(np.float32)
    expected = convolved(x, np.asarray(conv.kernel[...]), 2, before)
    np.testing.assert_allclose(conv(jnp.asarray(x)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("padding", "before"), [("symmetric", 1), ("same", 0)])
def test_the_pool_is_padded_as_the_recipe_says(padding, before):
    model = resnet(replace(model_settings("resnet8"), padding=padding))
    x = -1 - np.random.default_rng(2).random((1, 8, 8, 2)).astype(np.float32)  # below the 0 of a careless padding
    padded = np.pad(x, ((0, 0), (before, 2), (before, 2), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2][:, :4, :4]
    np.testing.assert_array_equal(model.pool(jnp.asarray(x)), windows.max((-2, -1)))


@pytest.mark.parametrize("padding", ["symmetric", "same"])
def test_the_folded_four_by_four_covers_the_seven_by_seven(padding):
    settings = replace(model_settings("resnet8", "space_to_depth"), padding=padding)
    folded = resnet(settings)
    plain = resnet(replace(settings, stem="conv7"))
    seven = np.asarray(plain.first.kernel[...])
    # The window of 8 begins one pixel earlier where the padding is symmetric, and ends one later where it is not.
    eight = np.pad(
        seven, ((1, 0), (1, 0), (0, 0), (0, 0)) if padding == "symmetric" else ((0, 1), (0, 1), (0, 0), (0, 0))
    )
    four = eight.reshape(4, 2, 4, 2, 3, 32).transpose(0, 2, 1, 3, 4, 5).reshape(4, 4, 12, 32)
    folded.first.kernel[...] = jnp.asarray(four)
    x = jnp.asarray(np.random.default_rng(3).normal(size=(2, 16, 16, 3)), jnp.float32)
    np.testing.assert_allclose(folded.first(space_to_depth(x)), plain.first(x), rtol=1e-4, atol=1e-5)


def test_blocks_start_with_the_recipes_last_scale():
    settings = Model(norm_span=2, name="resnet8", stem="conv3", last_scale=0.5)
    model = resnet(settings)
    for block in model.blocks:
        assert [float(norm.scale[...].mean()) for norm in block.norms] == [1.0, 0.5]


def test_space_to_depth_keeps_every_pixel_in_place():
    x = np.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3)
    y = np.asarray(space_to_depth(jnp.asarray(x)))
    for row, col in np.ndindex(4, 6):
        block = (row % 2) * 2 + col % 2
        np.testing.assert_array_equal(y[:, row // 2, col // 2, 3 * block : 3 * block + 3], x[:, row, col])


def test_an_unknown_network_is_named_with_the_choices():
    with pytest.raises(UserError, match=r"model\.name='vgg' is not one of resnet18"):
        check(model_settings("vgg"), 32)


def test_pixels_are_folded_in_pairs():
    check(model_settings("resnet8", "conv3"), 33)
    with pytest.raises(UserError, match=r"model\.stem=fold3 folds pixels in pairs; data\.image_size=33 must be even"):
        check(model_settings("resnet8", "fold3"), 33)
