"""Neighbouring columns of an image side by side in the last axis: [n, h, w, c] as [n, h, w/2, 2c].

A TPU computes on 128 channels at once, so that 64 leave half of it idle and take twice their memory. Two columns of 64
channels fill it. A convolution of such values is one with a rearranged kernel (`fold`): the same numbers, some zeros
between them, the same result. Weights are kept as every ResNet has them; only the step that is traced knows of
columns, and how many there are follows from the channels that a layer meets (docs/decisions/006).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

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


def convolve(layer: nnx.Conv, x: jax.Array, *, apart: bool = False) -> jax.Array:
    """The layer's convolution of [n, h, w, channels], or of pairs of columns side by side. Pairs need an even number of
    rows and padding that is alike on both sides; after a stride the columns stand alone again.

    The compiler's gradient of a stride inserts zeros and multiplies them. A 1×1 is therefore a slice and a product,
    and a 3×3 of pairs treats even and odd rows apart; one of single columns even and odd columns too, if `apart`.
    """
    columns, kernel = x.shape[-1] // layer.in_features, layer.kernel[...]
    if columns == 1 and native.serves(x, kernel):  # on a CPU, where the layer's own way is fast
        return layer(x)
    if layer.strides == 2 and layer.kernel_size == (1, 1):
        return convolution(x[:, ::2, :: 2 // columns, : layer.in_features], kernel, pads=((0, 0), (0, 0)))
    rows, around = symmetric(kernel.shape[0]), symmetric(kernel.shape[1])
    if columns == 1:
        halves = layer.strides == 2 and layer.padding == (rows, around) and not (x.shape[1] % 2 or x.shape[2] % 2)
        return _strided(x, kernel.astype(x.dtype), _Window((2, 2), (rows, around))) if apart and halves else layer(x)
    if layer.strides == 1:
        kernel, around = fold(kernel, 1, (columns, columns), before=around[0])
        return convolution(x, kernel, pads=(rows, around))
    kernel, around = fold(kernel, 1, (columns, columns // 2), before=around[0])
    return _strided(x, kernel.astype(x.dtype), _Window((2, 1), (rows, around)))


def convolution(x: jax.Array, kernel: jax.Array, strides: tuple[int, int] = (1, 1), *, pads: Pads) -> jax.Array:
    return lax.conv_general_dilated(x, kernel.astype(x.dtype), strides, pads, dimension_numbers=_DIMENSIONS)


class _Window(NamedTuple):
    strides: tuple[int, int]
    pads: Pads


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _strided(x: jax.Array, kernel: jax.Array, window: _Window) -> jax.Array:
    """A convolution that halves sides, whose gradient treats even and odd rows or columns of x apart."""
    return convolution(x, kernel, window.strides, pads=window.pads)


def _forward(x: jax.Array, kernel: jax.Array, window: _Window) -> tuple[jax.Array, Any]:
    return _strided(x, kernel, window), (x, kernel)


def _backward(window: _Window, residuals: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    (x, kernel), (strides, pads) = residuals, window

    def of_places(row: int, column: int) -> jax.Array:
        """The gradient of the rows row, row + strides[0], …, and of the columns alike."""
        part, around = kernel, []
        for axis, (first, stride) in enumerate(zip((row, column), strides, strict=True)):
            # Place stride · (i + d) + first of x is read by place i of y, through the tap stride · d + first + before:
            # places alike take part in a convolution of stride 1.
            before = pads[axis][0]
            tap = (first + before) % stride
            part = lax.slice_in_dim(part, tap, None, stride, axis)
            nearest = (tap - first - before) // stride
            around.append((-nearest, nearest + part.shape[axis] - 1))
        places = x[:, row :: strides[0], column :: strides[1]]
        return jax.vjp(lambda x: convolution(x, part, pads=(around[0], around[1])), places)[1](dy)[0]

    dx = woven([[of_places(row, column) for column in range(strides[1])] for row in range(strides[0])])
    (dkernel,) = jax.vjp(lambda kernel: convolution(x, kernel, strides, pads=pads), kernel)[1](dy)
    return dx, dkernel


_strided.defvjp(_forward, _backward)


def woven(places: Sequence[Sequence[jax.Array]]) -> jax.Array:
    """The array [n, h, w, c] of which places[r][k] has the rows r, r + len(places), … and the columns k, k + ….

    In the layout that a TPU's convolutions have as a rule, rows and columns outside, an array of places beside places
    is the result already. The compiler would choose another and copy; padding with zeros and adding writes each part
    at full size, in operations that its estimate leaves out.
    """
    parts = [[part.transpose(1, 2, 0, 3) for part in row] for row in places]
    h, w, n, c = parts[0][0].shape
    rows = [jnp.concatenate([part.reshape(h, 1, w, 1, n, c) for part in row], 3) for row in parts]
    beside = with_layout_constraint(jnp.concatenate(rows, 1), Layout(tuple(range(6))))
    return beside.reshape(h * len(places), w * len(places[0]), n, c).transpose(2, 0, 1, 3)
