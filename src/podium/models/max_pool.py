"""The maximum of 3×3 windows of stride 2, whose gradient is no scatter. XLA's own gradient of `reduce_window` adds
atomically on a GPU, which is slow and different in its last bits from run to run; here the forward pass remembers
where in its window each maximum was, and the backward pass is nine comparisons in one kernel.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

_SIZE, _STRIDE = 3, 2
Padding = tuple[tuple[int, int], tuple[int, int]]


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def max_pool(x: jax.Array, padding: Padding) -> jax.Array:
    """[batch, height, width, channels], as `flax.nnx.max_pool(x, (3, 3), (2, 2), padding)`."""
    return _forward(x, padding)[0]


def _forward(x: jax.Array, padding: Padding) -> tuple[jax.Array, Any]:
    below = jnp.array(-jnp.inf, x.dtype)
    padded = lax.pad(x, below, ((0, 0, 0), (*padding[0], 0), (*padding[1], 0), (0, 0, 0)))
    n, height, width, c = padded.shape
    out = [(length - _SIZE) // _STRIDE + 1 for length in (height, width)]
    last = [(length - 1) * _STRIDE + 1 for length in out]
    largest, place = jnp.full((n, *out, c), below), jnp.zeros((n, *out, c), jnp.int8)
    for k, (row, col) in enumerate(_window()):
        value = lax.slice(padded, (0, row, col, 0), (n, row + last[0], col + last[1], c), (1, _STRIDE, _STRIDE, 1))
        place = jnp.where(value > largest, jnp.int8(k), place)  # the first of several that are equal, as XLA has it
        largest = jnp.maximum(value, largest)
    return largest, (place, jnp.zeros((0, *x.shape[1:3]), x.dtype))


def _backward(padding: Padding, residuals: Any, gradient: jax.Array) -> tuple[jax.Array]:
    place, like = residuals
    dx = None
    for k, (row, col) in enumerate(_window()):
        given = jnp.where(place == k, gradient, jnp.zeros((), gradient.dtype))
        edges = (
            _edges(length, at, before=before, outputs=outputs)
            for length, at, (before, _), outputs in zip(
                like.shape[1:], (row, col), padding, gradient.shape[1:3], strict=True
            )
        )
        spread = lax.pad(given, jnp.zeros((), gradient.dtype), ((0, 0, 0), *edges, (0, 0, 0)))
        dx = spread if dx is None else dx + spread
    assert dx is not None
    return (dx,)


def _edges(length: int, at: int, *, before: int, outputs: int) -> tuple[int, int, int]:
    """How one place of all windows is spread over an axis of so many values; negative edges cut padding away."""
    first = at - before
    return first, length - first - ((outputs - 1) * _STRIDE + 1), _STRIDE - 1


def _window() -> list[tuple[int, int]]:
    return [(row, col) for row in range(_SIZE) for col in range(_SIZE)]


max_pool.defvjp(_forward, _backward)
