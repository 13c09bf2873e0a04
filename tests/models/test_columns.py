"""Convolutions of columns side by side against the plain ones of the compiler: values, and gradients of both sides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from podium.models.columns import convolution, convolve, fold, symmetric

ROWS, COLUMNS, C_IN, C_OUT = 6, 16, 3, 5


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def side_by_side(x, columns):
    """[n, h, w, c] → [n, h, w / columns, columns · c]"""
    n, h, w, c = x.shape
    return x.reshape(n, h, w // columns, columns * c)


def plain(x, kernel, stride):
    around = symmetric(kernel.shape[0])
    return lax.conv_general_dilated(x, kernel, stride, (around, around), dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize("taps", [1, 3, 4, 5, 7])
@pytest.mark.parametrize("places", [(2, 2), (4, 4), (2, 1), (4, 2), (8, 4)])
def test_a_folded_kernel_gives_the_plain_result_side_by_side(taps, places):
    inputs, outputs = places
    x, kernel = numbers(2, ROWS, COLUMNS, C_IN), numbers(taps, taps, C_IN, C_OUT, seed=1)
    folded, around = fold(kernel, 1, places, before=symmetric(taps)[0])
    y = convolution(side_by_side(x, inputs), folded, pads=(symmetric(taps), around))
    expected = plain(x, kernel, (1, inputs // outputs))
    np.testing.assert_allclose(y, side_by_side(expected, outputs), rtol=1e-5, atol=1e-5)


def layer(kernel, stride):
    around = symmetric(kernel)
    return nnx.Conv(
        C_IN, C_OUT, (kernel, kernel), stride, padding=(around, around), use_bias=False, rngs=nnx.Rngs(0)
    )  # fmt: skip


def with_gradients(f, x, kernel):
    """y, dx and dkernel, for a gradient of y that tells all its places apart."""
    y, back = jax.vjp(f, x, kernel)
    return y, *back(numbers(*y.shape, seed=2))


def through(conv, columns=1, apart=False):
    def f(x, kernel):
        graph, state = nnx.split(conv)
        conv_of_kernel = nnx.merge(graph, jax.tree.map(lambda _: kernel, state))
        y = convolve(conv_of_kernel, side_by_side(x, columns), apart=apart)
        return y.reshape(*y.shape[:2], -1, C_OUT)

    return f


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3, 7])
def test_a_layer_of_pairs_is_the_plain_layer(kernel, stride):
    conv, x = layer(kernel, stride), numbers(2, ROWS, COLUMNS, C_IN)
    weights = conv.kernel[...]
    got = with_gradients(through(conv, columns=2), x, weights)
    want = with_gradients(lambda x, kernel: plain(x, kernel, (stride, stride)), x, weights)
    for name, a, b in zip(("y", "dx", "dkernel"), got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(("rows", "columns"), [(6, 8), (7, 9), (1, 1)])
@pytest.mark.parametrize(
    ("kernel", "stride", "apart"),
    [(1, 1, False), (1, 2, True), (3, 1, True), (3, 2, False), (3, 2, True), (5, 2, True)],
)
def test_a_layer_of_single_columns_is_the_plain_layer_at_odd_sizes_too(kernel, stride, apart, rows, columns):
    conv, x = layer(kernel, stride), numbers(2, rows, columns, C_IN)
    weights = conv.kernel[...]
    got = with_gradients(through(conv, apart=apart), x, weights)
    want = with_gradients(lambda x, kernel: plain(x, kernel, (stride, stride)), x, weights)
    for name, a, b in zip(("y", "dx", "dkernel"), got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(("kernel", "columns"), [(1, 1), (3, 1), (3, 2)])
def test_the_gradient_of_a_strided_layer_multiplies_no_inserted_zeros(kernel, columns):
    """Inserted zeros are what a TPU multiplies for nothing: places apart need none, and pairs none down the rows."""
    conv, x = layer(kernel, 2), numbers(2, ROWS, COLUMNS, C_IN)
    packed = through(conv, columns, apart=True)
    y = packed(x, conv.kernel[...])
    dx = jax.jit(lambda x, dy: jax.vjp(lambda x: packed(x, conv.kernel[...]), x)[1](dy))
    assert "lhs_dilate = [2" not in dx.lower(x, y).as_text()
    assert "lhs_dilate = [2" in jax.jit(lambda x, dy: jax.vjp(conv, x)[1](dy)).lower(x, y).as_text()
