"""Batch normalization whose span is a number of examples, on any number of chips (the paper's first pillar).

A span smaller than a chip's batch splits that batch; a larger one is shared by a tile of neighbouring chips, which
exchange their statistics in one collective forward and one backward. Which of the two it is follows from the span,
the chip's batch and the mesh at trace time, so a model says "normalise over 128" and nothing else. Only training
needs the mesh; evaluation uses the moving statistics and no collective.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from podium.errors import UserError
from podium.mesh import TILE_AXES
from podium.models.attempt import NEAR, Attempt
from podium.models.one_pass import moments, sum_both


class Sums(NamedTuple):
    """Two sums over the same values, each [(groups,) channels]."""

    first: jax.Array
    second: jax.Array


class Groups(NamedTuple):
    """How a chip's batch is normalised."""

    in_batch: int
    axes: tuple[str, ...]
    """Over which chips share their statistics; then there is one group."""
    columns: int
    """How many columns of an image have their channels side by side in the last axis."""
    epsilon: float
    repeats: bool = False
    """Whether the step looks at the means that were found, and repeats itself about them where one was far."""

    def values(self, x: jax.Array) -> jax.Array:
        """[batch, …, channels] → fp32 [groups, values, channels]; one group is left without its axis, with which
        XLA:CPU's sums are a third slower."""
        shape = (-1,) if self.in_batch == 1 else (self.in_batch, -1)
        return x.reshape(*shape, x.shape[-1]).astype(jnp.float32)

    def row(self, statistic: jax.Array) -> jax.Array:
        """[…, channels] → […, 1, columns · channels], to stand beside the values."""
        return jnp.concatenate([statistic] * self.columns, -1)[..., None, :]

    def total(self, values: jax.Array) -> jax.Array:
        """[…, values, columns · channels] → […, channels]."""
        first, *others = jnp.split(values.sum(-2), self.columns, -1)
        return sum(others, first)

    def totals(self, first: jax.Array, second: jax.Array) -> Sums:
        """Both totals."""
        if self.columns == 1:
            return Sums(*sum_both(first, second))
        return Sums(self.total(first), self.total(second))

    def over_tile(self, sums: Sums) -> Sums:
        """Those of all chips that share statistics, in one collective. On a TPU it takes the two as they are: every
        operation costs some 2,000 cycles there, however small it is. Elsewhere two would be two collectives."""
        if not self.axes:
            return sums
        if self.repeats:
            return Sums(*lax.psum(tuple(sums), self.axes))
        return Sums(*lax.psum(jnp.stack(sums), self.axes))

    def of_parameters(self, sums: Sums) -> tuple[jax.Array, jax.Array]:
        """Both [channels], of all groups together."""
        first, second = (part.reshape(self.in_batch, -1).sum(0) if self.in_batch > 1 else part for part in sums)
        return first, second

    def weights(self, x: jax.Array, mask: jax.Array | None) -> jax.Array | None:
        """The example's mask for each value, [groups, values, 1]."""
        if mask is None:
            return None
        column = mask.reshape(-1, *(1,) * (x.ndim - 1))
        return self.values(jnp.broadcast_to(column, (*x.shape[:-1], 1)))


class Beside(NamedTuple):
    """What a norm has beside its input."""

    scale: jax.Array
    bias: jax.Array
    mask: jax.Array | None
    about: jax.Array
    """[channels]: where the mean is expected; the result does not depend on it."""


class DistributedBatchNorm(nnx.Module):
    """Normalises the last axis of [batch, …, channels] over every run of `span` examples of the global batch.

    The moving statistics are the mean over all spans of the span's mean and (biased) variance, which is what the
    network was trained with; the training step averages them over the chips together with the gradients, so they
    are the same on every chip and at every device count. Statistics are fp32 whatever the input's type. The last axis
    may hold the channels of several columns of an image side by side (`columns`).

    >>> import jax
    >>> from flax import nnx
    >>> from podium import DistributedBatchNorm
    >>> norm = DistributedBatchNorm(3, span=4, rngs=nnx.Rngs(0))
    >>> y = norm(jax.random.normal(jax.random.key(0), (8, 5, 5, 3)))  # two spans of four examples
    >>> [round(float(abs(span.mean())), 3) for span in (y[:4], y[4:])]
    [0.0, 0.0]
    """

    def __init__(
        self,
        channels: int,
        *,
        span: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        scale_init: nnx.Initializer = nnx.initializers.ones,
        rngs: nnx.Rngs,
    ) -> None:
        self.scale = nnx.Param(scale_init(rngs.params(), (channels,), jnp.float32))
        self.bias = nnx.Param(jnp.zeros(channels))
        self.mean = nnx.BatchStat(jnp.zeros(channels))
        self.var = nnx.BatchStat(jnp.ones(channels))
        self.span = span
        self.momentum = momentum
        self.epsilon = epsilon
        self.use_running_average = False  # what nnx.Module.train() and .eval() switch
        self.attempt: Attempt | None = None

    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        """`mask` [batch] is 1 for examples that count towards the statistics and 0 for padding."""
        if self.use_running_average:
            columns = x.shape[-1] // self.mean.shape[-1]
            factor = self.scale[...] * lax.rsqrt(self.var[...] + self.epsilon)
            mean, factor, bias = (jnp.tile(row, columns) for row in (self.mean[...], factor, self.bias[...]))
            return ((x.astype(jnp.float32) - mean) * factor + bias).astype(x.dtype)
        scale, bias, about = (vary_like(p, x) for p in (self.scale[...], self.bias[...], self.about()))
        y, mean, var = _normalize(self.groups(x), x, Beside(scale, bias, mask, about))
        self.move(mean, var)
        return y

    def groups(self, x: jax.Array) -> Groups:
        """The groups of `span` examples in a chip's batch, or the one that a tile shares."""
        in_batch, axes = _place(self.span, x.shape[0])
        repeats = in_batch == 1 and self.attempt is not None
        return Groups(in_batch, axes, x.shape[-1] // self.mean.shape[-1], self.epsilon, repeats)

    def about(self) -> jax.Array:
        """[channels]: where the mean is expected."""
        return self.mean[...] if self.attempt is None else self.attempt.about

    def move(self, mean: jax.Array, var: jax.Array) -> None:
        """Takes the statistics of this chip's groups [(groups,) channels] into the moving ones."""
        if self.attempt is not None and mean.ndim == 1:
            self.attempt.record(mean, var + self.epsilon)
        for moving, batch in ((self.mean, mean), (self.var, var)):
            of_batch = batch.reshape(-1, moving.shape[-1]).mean(axis=0)
            moving[...] = self.momentum * moving[...] + (1 - self.momentum) * of_batch


def _place(span: int, batch_per_chip: int) -> tuple[int, tuple[str, ...]]:
    """(groups in this chip's batch, mesh axes to exchange statistics over)."""
    if span <= batch_per_chip and batch_per_chip % span == 0:
        return batch_per_chip // span, ()
    try:
        tile_chips = lax.axis_size(TILE_AXES)
    except NameError:
        tile_chips = 1
    if tile_chips * batch_per_chip != span:
        raise UserError(
            f"a batch-norm span of {span} examples needs {span / batch_per_chip:g} chips of {batch_per_chip} "
            f"and the tile has {tile_chips}; build the mesh with podium.mesh.lay_out"
        )
    return 1, TILE_AXES


def vary_like(parameter: jax.Array, x: jax.Array) -> jax.Array:
    # A replicated parameter meets per-chip data: the cast's transpose sums its gradient over the chips, and it has
    # to stand outside the custom gradient, whose parameters and their gradients must vary alike.
    missing = tuple(jax.typeof(x).mat.varying - jax.typeof(parameter).mat.varying)
    return lax.pcast(parameter, missing, to="varying") if missing else parameter


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normalize(groups: Groups, x: jax.Array, beside: Beside) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(normalised x, and each group's mean and var [(groups,) channels]); no gradient flows through mean and var."""
    return _forward(groups, x, beside)[0]


def _forward(groups: Groups, x: jax.Array, beside: Beside) -> tuple[Any, Any]:
    values, row = groups.values(x), groups.row
    count, mean, var = statistics(groups, values, groups.weights(x, beside.mask), about=beside.about)
    inverse = lax.rsqrt(var + groups.epsilon)
    y = (values - row(mean)) * row(beside.scale * inverse) + row(beside.bias)
    return (y.reshape(x.shape).astype(x.dtype), mean, var), (x, beside, count, mean, inverse)


def _backward(groups: Groups, residuals: Any, gradients: Any) -> tuple[jax.Array, Beside]:
    x, (scale, _, mask, about), count, mean, inverse = residuals
    weight, dy, row = groups.weights(x, mask), groups.values(gradients[0]), groups.row
    normalised = (groups.values(x) - row(mean)) * row(inverse)
    sums = groups.totals(dy, dy * normalised)
    through = through_statistics(groups, normalised, sums, count=count)
    if weight is not None:
        through *= weight
    dx = row(scale * inverse) * (dy - through)
    dbias, dscale = groups.of_parameters(sums)
    dmask = None if mask is None else jnp.zeros_like(mask)
    return dx.reshape(x.shape).astype(x.dtype), Beside(dscale, dbias, dmask, jnp.zeros_like(about))


_normalize.defvjp(_forward, _backward)


def statistics(
    groups: Groups, values: jax.Array, weight: jax.Array | None, *, about: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Count (at least 1), mean and variance of each group."""
    if groups.repeats and weight is None:
        return _statistics_of_sums(groups, values, about)
    moments = _moments(groups, values, weight, about=about)
    if groups.axes:
        moments = merge(lax.all_gather(jnp.concatenate(moments, -1), groups.axes))
    count = jnp.maximum(moments[0], 1.0)
    return count, moments[1], moments[2] / count


def _statistics_of_sums(groups: Groups, values: jax.Array, about: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Where the step looks after means that were far: from sums of all chips about the same means, which cancel no more
    than those of one chip."""
    d = values - groups.row(about)
    first, second = groups.over_tile(groups.totals(d, d * d))
    chips = lax.axis_size(groups.axes) if groups.axes else 1
    count = jnp.full_like(about[:1], values.shape[-2] * groups.columns * chips)
    shift = first / count
    return count, about + shift, jnp.maximum(second / count - shift * shift, 0.0)


def through_statistics(groups: Groups, normalised: jax.Array, sums: Sums, *, count: jax.Array) -> jax.Array:
    """What the gradient of each value loses because mean and variance depend on it, in units of the deviation; `sums`
    are this chip's sums of (dy, dy · normalised)."""
    mean_dy, mean_dy_x = (groups.row(total / count) for total in groups.over_tile(sums))
    return mean_dy + normalised * mean_dy_x


def _moments(
    groups: Groups, values: jax.Array, weight: jax.Array | None, *, about: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Count, mean and sum of squared deviations of each group, as a rule in one pass over the data.

    Sums about a value that is known beforehand fuse into the convolution that makes the data; about one of the data
    they would have to wait for its end (docs/decisions/004). The moving mean is known, and near enough for
    Σd² − (Σd)²/n not to cancel. Where it is not, as may be in a run's first steps, a second pass takes the sums about
    the mean that the first has found.
    """
    count = jnp.full_like(about[:1], values.shape[-2]) if weight is None else weight.sum(-2)
    count *= groups.columns
    at_least_one = jnp.maximum(count, 1.0)

    def sums(about: jax.Array) -> tuple[jax.Array, jax.Array]:
        d = values - groups.row(about)
        wd = d if weight is None else d * weight
        shift, second = groups.total(wd) / at_least_one, groups.total(wd * d)
        return shift, jnp.maximum(second - at_least_one * shift * shift, 0.0)

    def again(mean: jax.Array, _: jax.Array) -> tuple[jax.Array, jax.Array]:
        shift, m2 = sums(mean)
        return mean + shift, m2

    def by_cases(values: jax.Array) -> tuple[jax.Array, jax.Array]:
        shift, m2 = sums(about)
        if groups.repeats:
            return about + shift, m2
        near = shift * shift <= NEAR * (m2 / at_least_one + groups.epsilon)
        return lax.cond(near.all(), lambda *found: found, again, about + shift, m2)

    if weight is not None or groups.columns > 1:
        return count, *by_cases(values)
    return count, *lax.platform_dependent(values, cuda=moments, default=by_cases)


def merge(moments: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Chan's parallel combination of [chips, …, (count, means, m2s)]: stable, and weighed by examples.

    A sum of squares would need one collective as well, but cancels for large means; gathering the moments of a
    tile (2C + 1 numbers a chip) costs no more latency.
    """
    channels = moments.shape[-1] // 2
    count, mean, m2 = jnp.split(moments, [1, 1 + channels], axis=-1)
    total = count.sum(0)
    at_least_one = jnp.maximum(total, 1.0)
    merged = (count * mean).sum(0) / at_least_one
    return total, merged, (m2 + count * (mean - merged) ** 2).sum(0)
