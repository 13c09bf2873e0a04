"""Batch norm's sums as a GPU wants them: two in one kernel, about a value that makes one pass over the data enough.
There every operation is a kernel of its own, and a branch that depends on data would stop the queue of launches
until the host has read what it depends on.
"""

import jax
import jax.numpy as jnp
from jax import lax

_PARTS = 64


def sum_both(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The sums of both over their last axis but one, [… values, channels] → [… channels]."""
    return lax.platform_dependent(first, second, cuda=_in_one_kernel, default=lambda a, b: (a.sum(-2), b.sum(-2)))


def _in_one_kernel(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    def add(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return a[0] + b[0], a[1] + b[1]

    zero = jnp.zeros((), first.dtype)
    return lax.reduce((first, second), (zero, zero), add, (first.ndim - 2,))


def moments(values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and sum of squared deviations over the last axis but one, in one pass after a glance at the first 64th of
    the values: the squared distance of its mean from that of all is at most 64 variances, since that part alone makes
    up so much of the variance. Sums about it cannot cancel."""
    count = values.shape[-2]
    near = values[..., : max(1, count // _PARTS), :].mean(-2)
    d = values - near[..., None, :]
    total, second = sum_both(d, d * d)
    return near + total / count, jnp.maximum(second - total * total / count, 0.0)
