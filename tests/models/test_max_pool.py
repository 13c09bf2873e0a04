import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from podium.models.max_pool import max_pool


@pytest.mark.parametrize("shape", [(2, 8, 8, 3), (1, 7, 10, 2), (2, 3, 5, 1)])
@pytest.mark.parametrize("padding", [((1, 1), (1, 1)), ((0, 1), (0, 1)), ((0, 0), (1, 0))])
@pytest.mark.parametrize("values", ["distinct", "with ties"])
def test_values_and_gradients_are_those_of_reduce_window(shape, padding, values):
    rng = np.random.default_rng(0)
    drawn = rng.permutation(np.prod(shape)) if values == "distinct" else rng.integers(0, 3, np.prod(shape))
    x = jnp.asarray(drawn.reshape(shape), jnp.float32)
    ours, theirs = max_pool(x, padding), nnx.max_pool(x, (3, 3), (2, 2), padding)
    np.testing.assert_array_equal(ours, theirs)
    weights = jnp.asarray(rng.standard_normal(ours.shape), jnp.float32)
    gradients = [
        jax.grad(lambda x, pool=pool: (pool(x) * weights).sum())(x)
        for pool in (lambda x: max_pool(x, padding), lambda x: nnx.max_pool(x, (3, 3), (2, 2), padding))
    ]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-6, atol=1e-6)


def test_the_gradient_has_no_scatter():
    x = jnp.zeros((2, 8, 8, 3))
    program = jax.jit(jax.grad(lambda x: max_pool(x, ((1, 1), (1, 1))).sum())).lower(x).as_text()
    assert "scatter" not in program
