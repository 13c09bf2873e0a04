"""Distributed batch norm against plain NumPy, against one device that holds the whole span, and against Flax."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from podium.errors import UserError
from podium.mesh import AXES, build_mesh
from podium.models import DistributedBatchNorm
from podium.models.attempt import Attempt
from podium.recipe.torus import Shape, lay_out

BATCH, CHANNELS = 32, 3
SPANS = [1, 2, 4, 8, 16, 32]  # a quarter of a chip's batch (4) to the whole torus (2×4 chips)


def examples(mean=0.5, std=2.0, seed=0):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((BATCH, 2, 3, CHANNELS)) * std + mean).astype(np.float32)
    dy = rng.standard_normal(x.shape).astype(np.float32)
    return x, dy


def run(x, dy, span, rows, cols, mask=None, start=0.0, attempts=False):
    """(y, dx, dscale, dbias, moving mean, moving var) of one training call on rows × cols chips, the moving mean being
    `start` before it; `attempts` as in a TPU's step, which looks after means that were far."""
    mesh = build_mesh(lay_out(Shape(rows, cols), BATCH, span), jax.devices()[: rows * cols])
    norm = DistributedBatchNorm(CHANNELS, span=span, rngs=nnx.Rngs(0))
    norm.scale[...] = jnp.array([1.0, -2.0, 0.5])
    norm.bias[...] = jnp.array([0.0, 1.0, -3.0])
    norm.mean[...] = jnp.broadcast_to(start, CHANNELS)
    graph, *(params, stats) = nnx.split(norm, nnx.Param, nnx.BatchStat)

    def on_chip(params, stats, x, dy, mask):
        def f(params, x):
            layer = nnx.merge(graph, params, stats, copy=True)
            if attempts:
                layer.attempt = Attempt(jax.lax.pcast(layer.mean[...], AXES, to="varying"))
            y = layer(x, None if attempts else mask)
            return (y.astype(jnp.float32) * dy).sum(), (y, nnx.state(layer, nnx.BatchStat))

        (_, (y, new)), (dparams, dx) = jax.value_and_grad(f, argnums=(0, 1), has_aux=True)(params, x)
        return y, dx, dparams, jax.tree.map(lambda s: jax.lax.pmean(s, AXES), new)

    mask = np.ones(BATCH, np.float32) if mask is None else mask
    program = jax.jit(jax.shard_map(
        on_chip, mesh=mesh, in_specs=(P(), P(), P(AXES), P(AXES), P(AXES)), out_specs=(P(AXES), P(AXES), P(), P())
    ))  # fmt: skip
    y, dx, dparams, new = jax.device_get(program(params, stats, x, dy, mask))
    return y, dx, dparams["scale"][...], dparams["bias"][...], new["mean"][...], new["var"][...]


def reference(x, dy, span, mask=None, start=0.0, epsilon=1e-5, momentum=0.9):
    """The definition, in float64: each run of `span` examples on its own."""
    scale, bias = np.array([1.0, -2.0, 0.5]), np.array([0.0, 1.0, -3.0])
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    mask = np.ones(len(x)) if mask is None else mask
    y, dx, dscale, dbias, means, variances = [], [], 0, 0, [], []
    for first in range(0, len(x), span):
        xs, ds = x[first : first + span], dy[first : first + span]
        w = np.broadcast_to(mask[first : first + span, None, None, None], (*xs.shape[:3], 1))
        n = w.sum()
        mean = (w * xs).sum((0, 1, 2)) / n
        var = (w * (xs - mean) ** 2).sum((0, 1, 2)) / n
        inverse = 1 / np.sqrt(var + epsilon)
        hat = (xs - mean) * inverse
        y.append(hat * scale + bias)
        through = ds.sum((0, 1, 2)) / n + hat * (ds * hat).sum((0, 1, 2)) / n
        dx.append(scale * inverse * (ds - w * through))
        dscale, dbias = dscale + (ds * hat).sum((0, 1, 2)), dbias + ds.sum((0, 1, 2))
        means.append(mean)
        variances.append(var)
    moving = momentum * start + (1 - momentum) * np.mean(means, 0), momentum + (1 - momentum) * np.mean(variances, 0)
    return np.concatenate(y), np.concatenate(dx), dscale, dbias, *moving


def agree(got, want, atol=2e-5):
    for name, a, b in zip(("y", "dx", "dscale", "dbias", "mean", "var"), got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=atol, err_msg=name)


@pytest.mark.parametrize("span", SPANS)
def test_eight_chips_agree_with_numpy(span):
    x, dy = examples()
    agree(run(x, dy, span, 2, 4), reference(x, dy, span))


@pytest.mark.parametrize("span", [2, 8, 32])
def test_eight_chips_agree_with_one_that_holds_every_span(span):
    x, dy = examples(seed=1)
    agree(run(x, dy, span, 2, 4), run(x, dy, span, 1, 1))


@pytest.mark.parametrize("span", [4, 16])
def test_numpys_gradient_is_the_true_gradient(span):
    # The reference itself, checked by finite differences: otherwise both could share a wrong formula.
    x, dy = examples(seed=2)
    dx = reference(x, dy, span)[1]
    direction = np.random.default_rng(3).standard_normal(x.shape)
    step = 1e-5
    ahead, behind = (np.sum(reference(x + s * step * direction, dy, span)[0] * dy) for s in (1, -1))
    assert (ahead - behind) / (2 * step) == pytest.approx((dx * direction).sum(), rel=1e-6)


@pytest.mark.parametrize("span", [8, 32])
def test_unequal_counts_weigh_by_examples(span):
    x, dy = examples(seed=4)
    mask = np.ones(BATCH, np.float32)
    mask[[0, 1, 2, 3, 5, 17]] = 0  # the first chip has nothing that counts
    agree(run(x, dy, span, 2, 4, mask), reference(x, dy, span, mask))


@pytest.mark.parametrize("span", SPANS)
def test_columns_side_by_side_share_their_channels_statistics(span):
    x, dy = examples(mean=20.0, seed=10)
    mask = np.ones(BATCH, np.float32)
    mask[[0, 5, 17]] = 0 if span > 1 else 1
    columns, dcolumns = (a.reshape(BATCH, 2, 1, 3 * CHANNELS) for a in (x, dy))
    y, dx, *others = run(columns, dcolumns, span, 2, 4, mask)
    agree((y.reshape(x.shape), dx.reshape(x.shape), *others), reference(x, dy, span, mask), atol=5e-5)


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("columns", [1, 3])
def test_sums_of_a_whole_tile_about_means_that_are_near_agree_with_numpy(span, columns):
    x, dy = examples(mean=20.0, seed=11)
    start = np.array([14.0, 20.0, 24.0])
    packed, dpacked = (a.reshape(BATCH, 2, 3 // columns, columns * CHANNELS) for a in (x, dy))
    y, dx, *others = run(packed, dpacked, span, 2, 4, start=start, attempts=True)
    want = reference(x, dy, span, start=start)
    agree((y.reshape(x.shape), dx.reshape(x.shape), *others), want, atol=1e-4)


@pytest.mark.parametrize("span", [2, 16])
def test_large_means_do_not_cancel(span):
    # E[x²] − E[x]² in fp32 would have an error of about 1e4² · 6e-8 = 6 on a variance of 1.
    x, dy = examples(mean=1e4, std=1.0)
    y, *_, var = run(x, dy, span, 2, 4)
    want_y, *_, want_var = reference(x, dy, span)
    np.testing.assert_allclose(var, want_var, rtol=1e-3)
    np.testing.assert_allclose(y, want_y, atol=5e-3)


# Moving means (the mean of the data is 100, its deviation 2): nowhere near, too far to subtract, just near enough for
# one pass, found; and one channel of each kind, as one second pass must serve all.
STARTS = [0.0, 70.0, 93.0, 100.0, np.array([0.0, 93.0, 100.0])]


@pytest.mark.parametrize("span", [2, 16])
@pytest.mark.parametrize("start", STARTS, ids=str)
def test_any_moving_mean_gives_the_same_answers(span, start):
    x, dy = examples(mean=100.0, seed=6)
    agree(run(x, dy, span, 2, 4, start=start), reference(x, dy, span, start=start), atol=1e-4)


@pytest.mark.parametrize("span", [2, 16])
@pytest.mark.parametrize("start", STARTS, ids=str)
def test_half_precision_is_as_exact_as_its_input(span, start):
    x, dy = examples(mean=100.0, seed=7)
    x, dy = (np.asarray(jnp.asarray(a, jnp.bfloat16)) for a in (x, dy))
    y, dx, *sums, mean, var = run(x, dy, span, 2, 4, start=start)
    want_y, want_dx, *want_sums, want_mean, want_var = reference(x, dy, span, start=start)
    assert (y.dtype, dx.dtype, var.dtype) == (jnp.bfloat16, jnp.bfloat16, np.float32)
    np.testing.assert_allclose(mean, want_mean, rtol=1e-6)
    np.testing.assert_allclose(var, want_var, rtol=1e-4)
    np.testing.assert_allclose(sums, want_sums, rtol=2e-4, atol=1e-4)
    rounding = 2.0**-8
    np.testing.assert_allclose(y.astype(np.float32), want_y, rtol=rounding, atol=1e-4)
    np.testing.assert_allclose(dx.astype(np.float32), want_dx, rtol=rounding, atol=1e-4)


def test_a_far_start_and_examples_that_do_not_count():
    x, dy = examples(mean=-300.0, seed=8)
    mask = np.ones(BATCH, np.float32)
    mask[[0, 1, 2, 3, 5, 17]] = 0  # the first chip has nothing that counts
    agree(run(x, dy, 16, 2, 4, mask), reference(x, dy, 16, mask), atol=5e-4)


def test_a_channel_without_variance_is_normalised_to_its_bias():
    x, dy = examples(seed=9)
    x[..., 1] = 1000.0
    y, dx, *_, var = run(x, dy, 16, 2, 4)
    np.testing.assert_allclose(y[..., 1], 1.0, atol=1e-3)
    assert np.isfinite(dx).all()
    np.testing.assert_allclose(var[1], 0.9, atol=1e-6)


def test_the_second_pass_is_taken_only_where_the_first_cancels():
    # What the compiled program skips as a rule: the only sums beside the first pair stand inside a conditional.
    x, _ = examples()
    norm = DistributedBatchNorm(CHANNELS, span=BATCH, rngs=nnx.Rngs(0))
    graph, state = nnx.split(norm)
    program = jax.jit(lambda x: nnx.merge(graph, state, copy=True)(x)).lower(x).as_text()
    sums = program.rsplit("stablehlo.case", 1)[0].count("applies stablehlo.add")
    assert sums == 2


def test_agrees_with_flax_where_both_apply():
    x, _ = examples(seed=5)
    ours = DistributedBatchNorm(CHANNELS, span=BATCH, momentum=0.9, epsilon=1e-5, rngs=nnx.Rngs(0))
    theirs = nnx.BatchNorm(CHANNELS, momentum=0.9, epsilon=1e-5, rngs=nnx.Rngs(0))
    np.testing.assert_allclose(ours(x), theirs(x), atol=1e-5)
    np.testing.assert_allclose(ours.mean[...], theirs.mean[...], rtol=1e-5)
    np.testing.assert_allclose(ours.var[...], theirs.var[...], rtol=1e-5)
    ours.eval()
    theirs.eval()
    np.testing.assert_allclose(ours(x), theirs(x), atol=1e-5)

    gradients = [jax.grad(lambda x, layer=layer: (_training(layer)(x) ** 3).sum())(x) for layer in (ours, theirs)]
    np.testing.assert_allclose(gradients[0], gradients[1], atol=2e-4)


def _training(layer):
    """A copy to train with, since a layer may not change inside `grad`."""
    copy = nnx.merge(*nnx.split(layer), copy=True)
    copy.train()
    return copy


def test_one_collective_forward_and_one_backward():
    span, (x, dy) = 16, examples()
    mesh = build_mesh(lay_out(Shape(2, 4), BATCH, span), jax.devices()[:8])
    graph, state = nnx.split(DistributedBatchNorm(CHANNELS, span=span, rngs=nnx.Rngs(0)))

    def dx(x, dy):
        return jax.grad(lambda x: (nnx.merge(graph, state, copy=True)(x) * dy).sum())(x)

    compiled = (
        jax.jit(jax.shard_map(dx, mesh=mesh, in_specs=(P(AXES), P(AXES)), out_specs=P(AXES))).lower(x, dy).compile()
    )
    collectives = re.findall(r" (all-[a-z]+|collective-[a-z]+|reduce-scatter)(?:-start)?\(", str(compiled.as_text()))
    assert sorted(collectives) == ["all-gather", "all-reduce"]


def test_half_precision_input_keeps_fp32_statistics():
    x, _ = examples(mean=30.0)
    norm = DistributedBatchNorm(CHANNELS, span=BATCH, rngs=nnx.Rngs(0))
    y = norm(jnp.asarray(x, jnp.bfloat16))
    assert y.dtype == jnp.bfloat16
    assert norm.var[...].dtype == jnp.float32
    want = np.asarray(jnp.asarray(x, jnp.bfloat16), np.float64)
    np.testing.assert_allclose(norm.var[...], 0.9 + 0.1 * want.var((0, 1, 2)), rtol=1e-4)


def test_a_span_that_the_mesh_was_not_built_for_is_refused():
    norm = DistributedBatchNorm(CHANNELS, span=2 * BATCH, rngs=nnx.Rngs(0))
    with pytest.raises(UserError, match=r"span of 64 examples needs 2 chips of 32 and the tile has 1"):
        norm(examples()[0])
