"""Maxima of neighbouring places: native on a CPU (`native/convolve`), otherwise XLA's, with the same values and
gradients."""

from functools import partial
from typing import Any

import jax
from flax import nnx
from jax import lax

from podium.models import native


def halve(x: jax.Array) -> jax.Array:
    """The maximum of every 2×2 values; an odd last row or column is left out. (Without the native library its gradient
    is several times faster on a CPU than that of `reduce_window`.)"""
    if native.serves(x):
        return _halve(x)
    b, h, w, c = x.shape
    return x[:, : h // 2 * 2, : w // 2 * 2].reshape(b, h // 2, 2, w // 2, 2, c).max((2, 4))


def max_pool(x: jax.Array, padding: Any) -> jax.Array:
    """The maximum of 3×3 values, with stride 2."""
    if not native.serves(x):
        return nnx.max_pool(x, (3, 3), (2, 2), padding)
    pads = lax.padtype_to_pads(x.shape[1:3], (3, 3), (2, 2), padding) if isinstance(padding, str) else padding
    size = tuple((s + sum(p) - 3) // 2 + 1 for s, p in zip(x.shape[1:3], pads, strict=True))
    return _max_pool((*size, pads[0][0], pads[1][0]), x)


_HALVES = (2, 2, 0, 0)  # size, stride, top, left


@jax.custom_vjp
def _halve(x: jax.Array) -> jax.Array:
    b, h, w, c = x.shape
    return native.call("halve", (b, h // 2, w // 2, c), x, numbers=_HALVES)


def _halve_backward(x: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
    return (native.call("halve_gradient", x.shape, x, dy, numbers=_HALVES),)


_halve.defvjp(lambda x: (_halve(x), x), _halve_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _max_pool(window: tuple[int, int, int, int], x: jax.Array) -> jax.Array:
    rows, columns, top, left = window
    return native.call("max_pool", (x.shape[0], rows, columns, x.shape[-1]), x, numbers=(3, 2, top, left))


def _max_pool_forward(window: tuple[int, int, int, int], x: jax.Array) -> tuple[jax.Array, Any]:
    y = _max_pool(window, x)
    return y, (x, y)


def _max_pool_backward(window: tuple[int, int, int, int], residuals: Any, dy: jax.Array) -> tuple[jax.Array]:
    x, y = residuals
    return (native.call("max_pool_gradient", x.shape, x, y, dy, numbers=(3, 2, *window[2:])),)


_max_pool.defvjp(_max_pool_forward, _max_pool_backward)
