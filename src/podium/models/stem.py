"""The stem of a ResNet on packed images: the 7×7 convolution of stride 2, batch norm, relu and the 3×3 maximum of
stride 2, for pixels that come from the host as `recipe.batch.pack_images` lays them out.

Batch norm with a positive scale and relu keep the order of values, so the maximum is taken of what the convolution
gives, and only the quarter that remains is normalised; a channel whose scale is negative is convolved with the
negative kernel, which makes it positive. Its gradient then needs no more than the maxima and where they were.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from podium.models.batch_norm import (
    Beside,
    DistributedBatchNorm,
    Groups,
    Sums,
    statistics,
    through_statistics,
    vary_like,
)
from podium.models.columns import convolution, fold, symmetric, woven
from podium.recipe.batch import PACKED_COLUMNS, PACKED_ROWS

_QUAD = PACKED_COLUMNS // 2  # columns of the convolution that stand side by side


def packed_stem(layer: nnx.Conv, norm: DistributedBatchNorm, images: jax.Array) -> jax.Array:
    """[n, h/2, w/8, 2 · 8 · 3] pixels → [n, h/4, w/8, 2c], two columns side by side."""
    if norm.use_running_average:
        return _pool(nnx.relu(norm(_convolve(layer.kernel[...], images))))[0]
    sign = jnp.where(norm.scale[...] < 0, -1.0, 1.0)
    x = _convolve(layer.kernel[...] * sign, images)
    scale, bias, about = (vary_like(p, x) for p in (norm.scale[...] * sign, norm.bias[...], norm.about() * sign))
    y, mean, var = _normalize(norm.groups(x), x, Beside(scale, bias, None, about))
    norm.move(mean * sign, var)
    return y


def _convolve(kernel: jax.Array, images: jax.Array) -> jax.Array:
    """Four columns side by side, the even ones first (0, 2, 1, 3): of the two that a maximum begins with, then of the
    two that it ends with."""
    before, _ = symmetric(kernel.shape[0])
    kernel, columns = fold(kernel, 1, (PACKED_COLUMNS, _QUAD), before=before)
    kernel, rows = fold(kernel, 0, (PACKED_ROWS, 1), before=before)
    even_first = kernel.reshape(*kernel.shape[:3], 2, 2, -1).swapaxes(3, 4).reshape(kernel.shape)
    return convolution(images, even_first, pads=(rows, columns))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normalize(groups: Groups, x: jax.Array, beside: Beside) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(relu of the largest normalised x of every window, and each group's mean and var); no scale is negative."""
    return _forward(groups, x, beside)[0]


def _forward(groups: Groups, x: jax.Array, beside: Beside) -> tuple[Any, Any]:
    count, mean, var = statistics(groups, groups.values(x), None, about=beside.about)
    inverse = lax.rsqrt(var + groups.epsilon)
    largest, place = _pool(x)
    pooled = _of_pairs(groups)
    normalised = (pooled.values(largest) - pooled.row(mean)) * pooled.row(beside.scale * inverse)
    y = nnx.relu(normalised + pooled.row(beside.bias)).reshape(largest.shape).astype(x.dtype)
    return (y, mean, var), (x, beside, count, mean, inverse, largest, place, y)


def _backward(groups: Groups, residuals: Any, gradients: Any) -> tuple[jax.Array, Beside]:
    x, (scale, _, _, about), count, mean, inverse, largest, place, y = residuals
    pooled, row = _of_pairs(groups), groups.row
    dy = jnp.where(y > 0, gradients[0], 0)
    of_largest = (pooled.values(largest) - pooled.row(mean)) * pooled.row(inverse)
    sums = Sums(pooled.total(pooled.values(dy)), pooled.total(pooled.values(dy) * of_largest))
    normalised = (groups.values(x) - row(mean)) * row(inverse)
    through = through_statistics(groups, normalised, sums, count=count)
    dx = row(scale * inverse) * (groups.values(_unpool(dy, place)) - through)
    dbias, dscale = groups.of_parameters(sums)
    return dx.reshape(x.shape).astype(x.dtype), Beside(dscale, dbias, None, jnp.zeros_like(about))


_normalize.defvjp(_forward, _backward)


def _of_pairs(groups: Groups) -> Groups:
    """The same groups of the maxima, which have half of the columns side by side."""
    return groups._replace(columns=groups.columns // 2)


def _pool(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest value of each 3×3 window of stride 2, and its place in the window, row by row; the first one where
    several are equal, as XLA has it. [n, h, w, columns 0 2 1 3] → [n, h/2, w, columns 0 1]."""
    n, h, w, lanes = x.shape
    pair, one = lanes // 2, lanes // 4
    # The column before 0 is the 3 of the group before, and that before 2 is 1.
    before = jnp.where(
        _is_first((*x.shape[:-1], pair)),
        _shifted(x, -jnp.inf, columns=(1, -1), lanes=(-3 * one, one)),
        _shifted(x, -jnp.inf, lanes=(-one, -one)),
    )

    def rows(values: jax.Array, first_lane: int) -> list[jax.Array]:
        padded = _shifted(values, -jnp.inf, rows=(1, 0))
        return [
            lax.slice(padded, (0, row, 0, first_lane), (n, row + h - 1, w, first_lane + pair), (1, 2, 1, 1))
            for row in range(3)
        ]

    window = [value for row in zip(rows(before, 0), rows(x, 0), rows(x, pair), strict=True) for value in row]
    largest = window[0]
    for value in window[1:]:
        largest = jnp.maximum(largest, value)
    place = jnp.full(largest.shape, 8.0, x.dtype)
    for i in reversed(range(8)):
        place = jnp.where(window[i] == largest, jnp.asarray(i, x.dtype), place)
    return largest, place


def _unpool(dy: jax.Array, place: jax.Array) -> jax.Array:
    """The gradient of each value of `_pool`'s input: of the windows that it was the largest of."""
    nowhere = 9.0
    here = dy, place
    right = _of_right(dy, 0.0), _of_right(place, nowhere)
    below, below_right = (
        (_shifted(gradient, 0.0, rows=(-1, 1)), _shifted(at, nowhere, rows=(-1, 1))) for gradient, at in (here, right)
    )

    def given(window: tuple[jax.Array, jax.Array], row: int, column: int) -> jax.Array:
        """To the value that stands in this row and column of the window."""
        gradient, at = window
        return jnp.where(at == 3 * row + column, gradient, 0)

    # An even row or column is the middle of one window; an odd one ends that window and begins the next.
    parts = {
        (0, 0): given(here, 1, 1),
        (0, 1): given(here, 1, 2) + given(right, 1, 0),
        (1, 0): given(here, 2, 1) + given(below, 0, 1),
        (1, 1): given(here, 2, 2) + given(right, 2, 0) + given(below, 0, 2) + given(below_right, 0, 0),
    }
    return woven([[jnp.concatenate([parts[row, 0], parts[row, 1]], -1)] for row in range(2)])


def _of_right(values: jax.Array, fill: float) -> jax.Array:
    """For the odd columns (1, 3), what the window has of which they are the first: that of column 2, and that of the
    next group's column 0."""
    one = values.shape[-1] // 2
    return jnp.where(
        _is_first(values.shape),
        _shifted(values, fill, lanes=(-one, one)),
        _shifted(values, fill, columns=(-1, 1), lanes=(one, -one)),
    )


def _is_first(shape: tuple[int, ...]) -> jax.Array:
    """Whether a lane belongs to the first of two columns."""
    return lax.broadcasted_iota(jnp.int32, shape, 3) < shape[3] // 2


def _shifted(
    x: jax.Array,
    fill: float,
    *,
    rows: tuple[int, int] = (0, 0),
    columns: tuple[int, int] = (0, 0),
    lanes: tuple[int, int] = (0, 0),
) -> jax.Array:
    """Padded by so much before and after, or cut where that is negative."""
    return lax.pad(x, jnp.asarray(fill, x.dtype), ((0, 0, 0), (*rows, 0), (*columns, 0), (*lanes, 0)))
