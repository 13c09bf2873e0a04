"""Batch norm, shortcut and relu in native passes, against the same written with XLA's operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from podium.mesh import AXES, build_mesh
from podium.models import DistributedBatchNorm, native
from podium.models.normalised import normalised
from podium.models.pool import halve, max_pool
from podium.recipe.torus import lay_out, parse_torus

pytestmark = pytest.mark.skipif(bool(native.missing), reason=native.missing)


def _of(norm_span, x, shortcut, *, relu, mean=0.0):
    """(result, moving statistics, gradients to x, shortcut, scale, bias), natively or not."""
    norm = DistributedBatchNorm(x.shape[-1], span=norm_span, rngs=nnx.Rngs(0))
    norm.mean[...] = jnp.full(x.shape[-1], mean)
    norm.scale[...] = jnp.linspace(-1, 2, x.shape[-1])
    norm.bias[...] = jnp.linspace(-0.5, 0.5, x.shape[-1])
    graph, params, stats = nnx.split(norm, nnx.Param, nnx.BatchStat)  # type: ignore[misc]

    def loss(params, x, shortcut):
        layer = nnx.merge(graph, params, stats, copy=True)
        y = normalised(layer, x, shortcut=shortcut, relu=relu)
        weights = jnp.cos(jnp.arange(y.size).reshape(y.shape))
        return (y * weights).sum(), (y, nnx.state(layer, nnx.BatchStat))

    of = (0, 1) if shortcut is None else (0, 1, 2)
    return jax.grad(loss, of, has_aux=True)(params, x, shortcut)


def _assert_same(ours, right):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(right), strict=True):
        scale = max(float(jnp.abs(b).max()), 1e-3)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize(
    ("shape", "span"), [((8, 5, 7, 33), 4), ((6, 3, 3, 160), 6), ((4, 9, 9, 1), 2), ((3, 2, 1030), 3)]
)
def test_results_statistics_and_gradients_are_those_of_the_layers(shape, span, with_shortcut, relu):
    keys = jax.random.split(jax.random.key(0), 2)
    x = jax.random.normal(keys[0], shape) * 2 + 0.3
    shortcut = jax.random.normal(keys[1], shape) if with_shortcut else None
    right = _of(span, x, shortcut, relu=relu)
    with native.used():
        ours = _of(span, x, shortcut, relu=relu)
    _assert_same(ours, right)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_every_instruction_set_agrees(isa):
    before = native.instruction_set()
    if not native.use_instruction_set(isa):
        pytest.skip(f"this processor has no {isa}")
    x = jax.random.normal(jax.random.key(1), (8, 6, 6, 21))
    with native.used():
        ours = _of(8, x, x[::-1], relu=True)
    native.use_instruction_set(before)
    _assert_same(ours, _of(8, x, x[::-1], relu=True))


def test_a_mean_far_from_the_moving_one_keeps_its_variance():
    x = jax.random.normal(jax.random.key(2), (8, 6, 6, 16)) * 0.01 + 500
    with native.used():
        _, (y, _) = _of(8, x, None, relu=False)
    exact = np.asarray(x, np.float64)
    exact = (exact - exact.mean((0, 1, 2))) / np.sqrt(exact.var((0, 1, 2)) + 1e-5)
    np.testing.assert_allclose(y, exact * np.linspace(-1, 2, 16) + np.linspace(-0.5, 0.5, 16), atol=2e-2)


def test_a_tile_of_chips_shares_its_statistics():
    mesh = build_mesh(lay_out(parse_torus("2x4"), 16, 8), jax.devices()[:8])
    graph, numbers = nnx.split(DistributedBatchNorm(24, span=8, rngs=nnx.Rngs(0)))
    x = jax.random.normal(jax.random.key(3), (16, 4, 4, 24)) + jnp.arange(16)[:, None, None, None]

    def results(native_too):
        def apply(x):
            with native.used(native_too):
                return jax.grad(lambda x: (normalised(nnx.merge(graph, numbers, copy=True), x) ** 3).sum())(x)

        mapped = jax.shard_map(apply, mesh=mesh, in_specs=P(AXES), out_specs=P(AXES))
        return jax.jit(mapped)(x)

    np.testing.assert_allclose(results(True), results(False), atol=2e-4)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
@pytest.mark.parametrize("shape", [(2, 8, 6, 16), (3, 7, 9, 5), (1, 2, 3, 40), (2, 15, 15, 48)])
def test_maxima_and_their_gradients_are_those_of_xla(shape, isa):
    before = native.instruction_set()
    if not native.use_instruction_set(isa):
        pytest.skip(f"this processor has no {isa}")
    x = jnp.round(jax.random.normal(jax.random.key(4), shape) * 2)  # equal values are many
    for pool in (halve, lambda x: max_pool(x, ((1, 1), (1, 1))), lambda x: max_pool(x, "SAME")):

        def of(x, pool=pool):
            y = pool(x)
            return (y * jnp.cos(jnp.arange(y.size).reshape(y.shape))).sum(), y

        right = jax.grad(of, has_aux=True)(x)
        with native.used():
            ours = jax.grad(of, has_aux=True)(x)
        _assert_same(ours, right)
    native.use_instruction_set(before)
