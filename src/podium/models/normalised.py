"""Batch norm, the addition of a shortcut and relu, which follow each other in every block: as they are written, or on a
CPU in as few passes over the data as there can be. Forward these are one for the sums and one for the result; backward
one for the sums and one for the gradient, in both of which relu's zeros are found anew instead of stored.

The statistics are those of `batch_norm`, whatever the chips: about the moving mean first, and about the mean just found
where that was far (docs/decisions/004).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from podium.models import native
from podium.models.attempt import NEAR
from podium.models.batch_norm import DistributedBatchNorm, Groups, merge


def normalised(norm: Any, x: jax.Array, *, shortcut: jax.Array | None = None, relu: bool = True) -> jax.Array:
    """relu(norm(x) + shortcut), of any norm."""
    ours = isinstance(norm, DistributedBatchNorm) and x.shape[-1] == norm.mean.shape[-1]  # no columns side by side
    if ours and not norm.use_running_average and native.serves(x):
        return _native(norm, x, shortcut, relu=relu)
    y = norm(x) if shortcut is None else norm(x) + shortcut
    return nnx.relu(y) if relu else y


def _native(norm: DistributedBatchNorm, x: jax.Array, shortcut: jax.Array | None, *, relu: bool) -> jax.Array:
    rows = x.reshape(-1, x.shape[-1])
    scale, bias, about, rows = native.vary_alike(norm.scale[...], norm.bias[...], norm.mean[...], rows)
    beside = None if shortcut is None else shortcut.reshape(rows.shape)
    y, mean, var = _normalise(_How(norm.groups(x), relu), _Inputs(rows, beside), _Parameters(scale, bias, about))
    norm.move(mean, var)
    return y.reshape(x.shape)


class _How(NamedTuple):
    groups: Groups
    relu: bool


class _Inputs(NamedTuple):
    x: jax.Array
    shortcut: jax.Array | None


class _Parameters(NamedTuple):
    scale: jax.Array
    bias: jax.Array
    about: jax.Array


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normalise(how: _How, inputs: _Inputs, parameters: _Parameters) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The result [rows, channels], and each group's mean and variance [groups, channels]; no gradient flows through
    these two."""
    return _forward(how, inputs, parameters)[0]


def _forward(how: _How, inputs: _Inputs, parameters: _Parameters) -> tuple[Any, Any]:
    (x, shortcut), (scale, bias, about) = inputs, parameters
    count, mean, m2 = _moments(how.groups, x, about)
    if how.groups.axes:
        count, mean, m2 = merge(lax.all_gather(jnp.concatenate([count, mean, m2], -1), how.groups.axes))
    var = m2 / count
    inverse = lax.rsqrt(var + how.groups.epsilon)
    constants = jnp.stack([mean, scale * inverse, jnp.broadcast_to(bias, mean.shape)], axis=1)
    operands = (x, constants) if shortcut is None else (x, constants, shortcut)
    y = native.call("norm_apply", x.shape, *operands, numbers=(how.relu,))
    kept = y if how.relu and shortcut is not None else None
    return (y, mean, var), (x, kept, shortcut is not None, constants, inverse, count)


def _backward(how: _How, residuals: Any, gradients: Any) -> tuple[_Inputs, _Parameters]:
    x, y, has_shortcut, constants, inverse, count = residuals
    dy, relu = gradients[0], how.relu
    if y is not None:  # where relu's zeros were depends on the shortcut too, which gets this gradient as well
        dy, relu = jnp.where(y > 0, dy, 0.0), False
    shape = (how.groups.in_batch, 2, x.shape[-1])
    sums = native.call("norm_gradient_sums", shape, x, constants, dy, numbers=(relu,))
    sums = sums.at[:, 1].multiply(inverse)
    of_span = lax.psum(sums, how.groups.axes) if how.groups.axes else sums
    mean_dy, mean_dy_x = of_span[:, 0] / count, of_span[:, 1] / count
    more = jnp.stack([mean_dy, mean_dy_x * inverse], axis=1)
    dx = native.call("norm_gradient", x.shape, x, jnp.concatenate([constants, more], 1), dy, numbers=(relu,))
    dbias, dscale = sums.sum(0)
    return _Inputs(dx, dy if has_shortcut else None), _Parameters(dscale, dbias, jnp.zeros_like(dbias))


_normalise.defvjp(_forward, _backward)


def _moments(groups: Groups, x: jax.Array, about: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Count [groups, 1], mean and sum of squared deviations [groups, channels] of this chip's rows."""
    rows, shape = x.shape[0] // groups.in_batch, (groups.in_batch, 2, x.shape[-1])

    def sums(about: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, second = jnp.moveaxis(native.call("norm_sums", shape, x, about[:, None], numbers=(0,)), 1, 0)
        shift = first / rows
        return shift, jnp.maximum(second - rows * shift * shift, 0.0)

    def again(mean: jax.Array, _: jax.Array) -> tuple[jax.Array, jax.Array]:
        shift, m2 = sums(mean)
        return mean + shift, m2

    everywhere = jnp.broadcast_to(about, (groups.in_batch, about.shape[-1]))
    shift, m2 = sums(everywhere)
    near = shift * shift <= NEAR * (m2 / rows + groups.epsilon)
    count = jnp.full_like(shift[:, :1], rows)
    return count, *lax.cond(near.all(), lambda *found: found, again, everywhere + shift, m2)
