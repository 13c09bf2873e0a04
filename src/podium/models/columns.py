"""Neighbouring columns of an image side by side in the last axis: [n, h, w, c] as [n, h, w/2, 2c].

A TPU computes on 128 channels at once, so that 64 leave half of it idle and take twice their memory. Two columns of 64
channels fill it. A convolution of such values is one with a rearranged kernel (`fold`): the same numbers, some zeros
between them, the same result. Weights are kept as every ResNet has them; only the step that is traced knows of
columns, and how many there are follows from the channels that a layer meets (docs/decisions/006).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from podium.models import native

Pads = tuple[tuple[int, int], tuple[int, int]]
_DIMENSIONS = ("NHWC", "HWIO", "NHWC")


def fold(kernel: jax.Array, axis: int, places: tuple[int, int], *, before: int) -> tuple[jax.Array, tuple[int, int]]:
    """The kernel for inputs that hold `places[0]` places of a spatial axis side by side, giving outputs that hold
    `places[1]` (of a stride of their ratio), and its padding; `before` is the plain kernel's padding at the start.

    Output place o of group q reads input i of group q + d where the plain kernel has the tap i + inputs · d −
    stride · o + before.
    """
    inputs, outputs = places
    stride, taps = inputs // outputs, kernel.shape[axis]
    first = -before // inputs
    last = (stride * (outputs - 1) + taps - 1 - before) // inputs
    plain = jnp.split(kernel, taps, axis)
    nothing = jnp.zeros_like(plain[0])

    def tap(group: int, i: int, o: int) -> jax.Array:
        t = inputs * group + i - stride * o + before
        return plain[t] if 0 <= t < taps else nothing

    def of_group(group: int) -> jax.Array:
        rows = [jnp.concatenate([tap(group, i, o) for o in range(outputs)], -1) for i in range(inputs)]
        return jnp.concatenate(rows, -2)

    return jnp.concatenate([of_group(group) for group in range(first, last + 1)], axis), (-first, last)


def symmetric(taps: int) -> tuple[int, int]:
    """The padding that is alike on both sides. An even kernel (of folded pixels) reaches further to the start: 4 taps
    then cover what the 7 of stride 2 do."""
    return taps // 2, (taps - 1) // 2


def convolve(layer: nnx.Conv, x: jax.Array) -> jax.Array:
    """The layer's convolution of [n, h, w, channels], or of pairs of columns side by side. Pairs need an even number of
    rows and padding that is alike on both sides; after a stride the columns stand alone again.

    The compiler's gradient of a stride inserts zeros and multiplies them. A 1×1 is therefore a slice and a product,
    and a 3×3 of pairs treats even and odd rows apart. For the other strides the compiler's way is as fast.
    """
    columns, kernel = x.shape[-1] // layer.in_features, layer.kernel[...]
    if columns == 1 and native.serves(x, kernel):  # on a CPU, where the layer's own way is fast
        return layer(x)
    if layer.strides == 2 and layer.kernel_size == (1, 1):
        return convolution(x[:, ::2, :: 2 // columns, : layer.in_features], kernel, pads=((0, 0), (0, 0)))
    if columns == 1:
        return layer(x)
    rows, before = symmetric(kernel.shape[0]), symmetric(kernel.shape[1])[0]
    if layer.strides == 1:
        kernel, around = fold(kernel, 1, (columns, columns), before=before)
        return convolution(x, kernel, pads=(rows, around))
    kernel, around = fold(kernel, 1, (columns, columns // 2), before=before)
    return _every_second_row(x, kernel.astype(x.dtype), (rows, around))


def convolution(x: jax.Array, kernel: jax.Array, strides: tuple[int, int] = (1, 1), *, pads: Pads) -> jax.Array:
    return lax.conv_general_dilated(x, kernel.astype(x.dtype), strides, pads, dimension_numbers=_DIMENSIONS)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _every_second_row(x: jax.Array, kernel: jax.Array, pads: Pads) -> jax.Array:
    """A convolution with stride 2 down the rows, whose gradient treats even and odd rows apart."""
    return convolution(x, kernel, (2, 1), pads=pads)


def _rows_forward(x: jax.Array, kernel: jax.Array, pads: Pads) -> tuple[jax.Array, Any]:
    return _every_second_row(x, kernel, pads), (x, kernel)


def _rows_backward(pads: Pads, residuals: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = residuals
    (before, _), columns = pads

    def of_rows(parity: int) -> jax.Array:
        # Row 2(i + d) + parity of x is read by row i of y, through the tap 2d + parity + before: rows of one parity
        # take part in a convolution of stride 1.
        part = kernel[(parity + before) % 2 :: 2]
        first = ((parity + before) % 2 - parity - before) // 2
        around = (-first, first + len(part) - 1)
        return jax.vjp(lambda rows: convolution(rows, part, pads=(around, columns)), x[:, parity::2])[1](dy)[0]

    zero = jnp.zeros((), dy.dtype)
    even, odd = (
        lax.pad(of_rows(parity), zero, ((0, 0, 0), (parity, 1 - parity, 1), (0, 0, 0), (0, 0, 0))) for parity in (0, 1)
    )
    (dkernel,) = jax.vjp(lambda kernel: convolution(x, kernel, (2, 1), pads=pads), kernel)[1](dy)
    return even + odd, dkernel


_every_second_row.defvjp(_rows_forward, _rows_backward)
