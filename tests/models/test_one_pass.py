import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podium.models import one_pass


def exactly(values):
    """In double precision: the reference."""
    wide = np.asarray(values, np.float64)
    mean = wide.mean(-2)
    return mean, ((wide - mean[..., None, :]) ** 2).sum(-2)


@pytest.fixture(params=[(0.0, 1.0), (1e4, 1.0), (-300.0, 0.01)], ids=str)
def values(request):
    offset, spread = request.param
    return (offset + spread * np.random.default_rng(0).standard_normal((3, 32 * 49, 5))).astype(np.float32)


def test_one_pass_finds_mean_and_variance_also_far_from_zero(values):
    mean, m2 = one_pass.moments(jnp.asarray(values))
    np.testing.assert_allclose(mean, exactly(values)[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(m2, exactly(values)[1], rtol=2e-5)


def test_one_pass_stands_first_values_that_are_nothing_like_the_others():
    values = np.random.default_rng(1).standard_normal((64 * 32, 3)).astype(np.float32)
    values[:32] += 1e6  # the first 64th: as far off as it can be, measured in deviations of all
    mean, m2 = one_pass.moments(jnp.asarray(values))
    np.testing.assert_allclose(mean, exactly(values)[0], rtol=1e-5)
    np.testing.assert_allclose(m2, exactly(values)[1], rtol=1e-4)


def test_two_sums_in_one_kernel_are_the_same_sums(values):
    first, second = jnp.asarray(values), jnp.asarray(values) ** 2
    for one, two in zip(one_pass._in_one_kernel(first, second), one_pass.sum_both(first, second), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-3)
    program = jax.jit(one_pass._in_one_kernel).lower(first, second).as_text()
    assert program.count("stablehlo.reduce") == 1
