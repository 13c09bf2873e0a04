"""The stem on packed images against the plain one: convolution, batch norm, relu and maximum as XLA has them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from podium.mesh import AXES, build_mesh
from podium.models import DistributedBatchNorm
from podium.models.resnet import Layers
from podium.models.stem import packed_stem
from podium.recipe.batch import pack_images
from podium.recipe.torus import Shape, lay_out

CHANNELS = 4
# One of each kind: as at the start, flipped, small, and one that relu lets little through.
SCALE, BIAS = np.array([1.0, -2.0, 0.3, -0.5], np.float32), np.array([0.0, 1.0, 3.0, -0.4], np.float32)


class Stem(nnx.Module):
    def __init__(self, span):
        layers = Layers(partial(DistributedBatchNorm, span=span), jnp.float32)
        self.conv = layers.conv((3, CHANNELS), 7, 2, rngs=nnx.Rngs(0))
        self.norm = DistributedBatchNorm(CHANNELS, span=span, rngs=nnx.Rngs(0))
        self.norm.scale[...], self.norm.bias[...] = SCALE, BIAS

    def __call__(self, images):
        if images.shape[-1] != 3:
            y = packed_stem(self.conv, self.norm, images.transpose(2, 0, 1, 3))
            return y.reshape(*y.shape[:2], -1, CHANNELS)
        y = nnx.relu(self.norm(self.conv(images)))
        return nnx.max_pool(y, (3, 3), (2, 2), ((1, 1), (1, 1)))


def run(stem, images, *, packed, chips=1, span=None):
    """y, gradients of the parameters, and the moving statistics, on so many chips."""
    batch, size = images.shape[:2]
    mesh = build_mesh(lay_out(Shape(1, chips), batch, span or batch), jax.devices()[:chips])
    graph, *(params, stats) = nnx.split(stem, nnx.Param, nnx.BatchStat)
    dy = np.random.default_rng(9).standard_normal((batch, size // 4, size // 4, CHANNELS)).astype(np.float32)

    def on_chip(params, stats, images, dy):
        def objective(params):
            stem = nnx.merge(graph, params, stats, copy=True)
            y = stem(images.astype(jnp.float32))
            return (y * dy).sum(), (y, nnx.state(stem, nnx.BatchStat))

        gradients, (y, new) = jax.grad(objective, has_aux=True)(params)
        return y, gradients, jax.tree.map(lambda s: jax.lax.pmean(s, AXES), new)

    mapped = jax.shard_map(
        on_chip, mesh=mesh, in_specs=(P(), P(), P(AXES), P(AXES)), out_specs=(P(AXES), P(), P())
    )  # fmt: skip
    if packed:
        images = np.concatenate([pack_images(part) for part in np.split(images, chips)])
    return jax.device_get(jax.jit(mapped)(params, stats, images, dy))


def agree(got, want):
    for (path, a), b in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * max(1.0, abs(b).max()), err_msg=str(path))


def images(batch, size, seed=0):
    return np.random.default_rng(seed).standard_normal((batch, size, size, 3)).astype(np.float32)


@pytest.mark.parametrize("size", [8, 16, 40])
def test_it_is_the_plain_stem(size):
    stem, x = Stem(span=4), images(4, size)
    agree(run(stem, x, packed=True), run(stem, x, packed=False))


# Two groups in a chip's batch, a chip's batch, half of the chips, all chips.
@pytest.mark.parametrize("span", [2, 4, 8, 16])
def test_it_is_the_plain_stem_on_four_chips_for_every_span(span):
    stem, x = Stem(span), images(16, 16, seed=1)
    agree(run(stem, x, packed=True, chips=4, span=span), run(stem, x, packed=False, chips=4, span=span))


def test_equal_values_send_their_gradient_where_the_compiler_does():
    """Pixels of three values and a kernel that looks at one of them: most windows have several maxima."""
    x = np.random.default_rng(2).integers(0, 3, (4, 24, 24, 3)).astype(np.float32)
    stem = Stem(span=4)
    kernel = np.zeros((7, 7, 3, CHANNELS), np.float32)
    kernel[3, 3, 0] = 1.0
    stem.conv.kernel[...] = kernel
    stem.norm.bias[...] = np.full(CHANNELS, 5.0, np.float32)  # relu lets all through
    got, want = run(stem, x, packed=True), run(stem, x, packed=False)
    agree(got, want)
    # That the gradient tells where it went: another order of the image gives another one.
    turned = run(stem, x[:, ::-1, ::-1].copy(), packed=False)[1]
    assert not np.allclose(turned["conv"]["kernel"][...][::-1, ::-1], want[1]["conv"]["kernel"][...], atol=1e-2)


def test_a_mean_far_from_the_moving_one_does_not_cancel():
    stem, x = Stem(span=4), images(4, 16, seed=3) + 50
    agree(run(stem, x, packed=True), run(stem, x, packed=False))


def test_evaluation_takes_packed_images_too():
    stem, x = Stem(span=4), images(4, 16, seed=4)
    stem.norm.mean[...], stem.norm.var[...] = np.array([0.1, -0.2, 0.3, 0.0]), np.array([1.0, 2.0, 0.5, 1.5])
    stem.eval()
    np.testing.assert_allclose(stem(jnp.asarray(pack_images(x))), stem(jnp.asarray(x)), rtol=1e-5, atol=1e-5)


def test_half_precision_gives_what_half_precision_can():
    stem, x = Stem(span=4), np.asarray(jnp.asarray(images(4, 16, seed=5), jnp.bfloat16))
    graph, state = nnx.split(stem)
    got, want = (
        nnx.merge(graph, state, copy=True)(jnp.asarray(form)).astype(jnp.float32) for form in (pack_images(x), x)
    )
    np.testing.assert_allclose(got, want, rtol=2.0**-6, atol=2.0**-6)
