"""The native convolutions against sums in fp64, for every instruction set that this processor has."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from podium.models import native
from podium.models.convolution import Conv, convolve

pytestmark = pytest.mark.skipif(bool(native.missing), reason=native.missing)

# n, h, w, c, k, kernel, stride, padding
SHAPES = [
    (1, 1, 1, 1, 1, 1, 1, "SAME"),
    (1, 5, 7, 3, 2, 3, 1, "SAME"),
    (2, 31, 31, 24, 48, 3, 1, "SAME"),
    (16, 9, 11, 17, 33, 3, 1, "SAME"),
    (5, 13, 16, 16, 16, 3, 1, "VALID"),
    (7, 12, 9, 31, 160, 3, 1, ((2, 2), (2, 2))),
    (4, 15, 14, 65, 16, 3, 1, ((0, 1), (2, 0))),
    (64, 3, 3, 40, 24, 3, 1, "SAME"),
    (2, 9, 9, 130, 513, 3, 1, "SAME"),
    (1, 33, 34, 3, 64, 7, 2, ((3, 3), (3, 3))),
    (1, 16, 16, 12, 16, 4, 1, ((2, 1), (2, 1))),
    (2, 91, 62, 3, 33, 7, 2, ((3, 3), (3, 3))),
    (1, 20, 130, 3, 40, 5, 1, "VALID"),
    (2, 25, 70, 16, 24, 3, 2, ((1, 1), (1, 1))),
    (2, 10, 9, 513, 20, 1, 1, "SAME"),
    (2, 11, 12, 33, 70, 1, 2, "SAME"),
    (3, 12, 13, 20, 36, 3, 2, "SAME"),
    (3, 13, 12, 19, 17, 3, 2, ((1, 1), (1, 1))),
    (2, 14, 13, 8, 9, 2, 3, "VALID"),
    (1, 9, 8, 5, 6, 5, 3, "SAME"),
    (2, 4, 4, 2, 3, 1, 3, ((1, 0), (0, 2))),
    (70, 10, 10, 1, 1, 3, 1, "SAME"),
    (1, 2, 2, 600, 40, 3, 1, "SAME"),
]
ISAS = ("avx512", "avx2", "plain")


@pytest.fixture(params=ISAS)
def isa(request):
    before = native.instruction_set()
    if not native.use_instruction_set(request.param):
        pytest.skip(f"this processor has no {request.param}")
    yield request.param
    native.use_instruction_set(before)


def _pads(size, taps, stride, padding):
    if padding == "VALID":
        return (0, 0)
    total = max((-(-size // stride) - 1) * stride + taps - size, 0)
    return total // 2, total - total // 2


class _Exact:
    """A convolution in fp64, tap by tap."""

    def __init__(self, shape, seed=0):
        self.n, self.h, self.w, self.c, self.k, self.taps, self.stride, self.padding = shape
        self.pads = (
            tuple(_pads(size, self.taps, self.stride, self.padding) for size in (self.h, self.w))
            if isinstance(self.padding, str)
            else self.padding
        )
        rng = np.random.default_rng(seed)
        self.rows, self.columns = (
            (size + sum(pads) - self.taps) // self.stride + 1
            for size, pads in zip((self.h, self.w), self.pads, strict=True)
        )
        self.x = rng.standard_normal((self.n, self.h, self.w, self.c), np.float32)
        self.kernel = rng.standard_normal((self.taps, self.taps, self.c, self.k), np.float32)
        self.dy = rng.standard_normal((self.n, self.rows, self.columns, self.k), np.float32)

    def _seen(self, padded, a, b):
        """What tap (a, b) sees of the padded image, one place for each output."""
        s = self.stride
        return padded[:, a : a + s * (self.rows - 1) + 1 : s, b : b + s * (self.columns - 1) + 1 : s]

    def results(self):
        padded = np.pad(self.x.astype(np.float64), ((0, 0), *self.pads, (0, 0)))
        dpadded = np.zeros_like(padded)
        y, dkernel = np.zeros(self.dy.shape), np.zeros(self.kernel.shape)
        kernel, dy = self.kernel.astype(np.float64), self.dy.astype(np.float64)
        for a, b in product(range(self.taps), range(self.taps)):
            seen = self._seen(padded, a, b)
            y += seen @ kernel[a, b]
            dkernel[a, b] = np.tensordot(seen, dy, ((0, 1, 2), (0, 1, 2)))
            self._seen(dpadded, a, b)[...] += dy @ kernel[a, b].T
        (top, _), (left, _) = self.pads
        return y, dpadded[:, top : top + self.h, left : left + self.w], dkernel


def _assert_close(ours, exact):
    """To 3e-5 of the largest value: Winograd's transforms multiply by up to 5 and add up to 36 terms."""
    assert ours.shape == exact.shape
    np.testing.assert_allclose(np.asarray(ours), exact, rtol=0, atol=3e-5 * max(np.abs(exact).max(), 1e-3))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_fp64(shape, isa):
    exact = _Exact(shape)

    @jax.jit
    def ours(x, kernel, dy):
        y, backward = jax.vjp(
            lambda x, kernel: convolve(x, kernel, stride=exact.stride, padding=exact.padding), x, kernel
        )
        return y, *backward(dy)

    for ours_, exact_ in zip(ours(exact.x, exact.kernel, exact.dy), exact.results(), strict=True):
        _assert_close(ours_, exact_)


def test_random_shapes_agree():
    rng = np.random.default_rng(7)
    for seed in range(25):
        taps = int(rng.integers(1, 6))
        h, w = (int(size) for size in rng.integers(taps, 20, 2))
        channels = [int(c) for c in rng.choice([1, 2, 3, 7, 16, 24, 32, 47, 64, 100], 2)]
        pads = tuple((int(a), int(b)) for a, b in rng.integers(0, taps, (2, 2)))
        exact = _Exact((int(rng.integers(1, 5)), h, w, *channels, taps, int(rng.integers(1, 4)), pads), seed)
        y, backward = jax.vjp(partial(convolve, stride=exact.stride, padding=exact.padding), exact.x, exact.kernel)
        for ours, right in zip((y, *backward(exact.dy)), exact.results(), strict=True):
            _assert_close(ours, right)


def test_the_same_bits_on_every_run_and_beside_others():
    """Sums are cut by shape, never by the number of threads: eight chips that share them give the bits of one."""
    exact = _Exact((16, 15, 15, 48, 48, 3, 1, "SAME"))
    ours = jax.jit(jax.grad(lambda k, x: (convolve(x, k, padding="SAME") ** 2).sum()))
    alone = np.asarray(ours(exact.kernel, exact.x))
    mesh = jax.make_mesh((8,), ("chips",))
    each = jax.shard_map(
        lambda k, x: ours(jax.lax.pcast(k, "chips", to="varying"), x)[None],
        mesh=mesh,
        in_specs=(P(), P()),
        out_specs=P("chips"),
    )
    # Every chip has the whole batch.
    for of_chip in np.asarray(jax.jit(each)(exact.kernel, exact.x)):
        np.testing.assert_array_equal(of_chip, alone)


def _layer(**given):
    return Conv(4, 8, (3, 3), padding=((1, 1), (1, 1)), use_bias=False, rngs=nnx.Rngs(0), **given)


def _has_custom_call(f, *arguments):
    return "podium_convolve" in jax.jit(f).lower(*arguments).as_text()


def test_a_layer_is_native_only_where_it_is_used():
    layer, x = _layer(), jnp.ones((2, 5, 5, 4))

    def used(x):
        with native.used():
            return layer(x)

    assert _has_custom_call(used, x)
    assert not _has_custom_call(layer, x)
    np.testing.assert_allclose(used(x), layer(x), atol=1e-5)


def test_other_types_are_left_to_xla():
    layer = _layer(dtype=jnp.bfloat16)

    def used(x):
        with native.used():
            return layer(x)

    assert not _has_custom_call(used, jnp.ones((2, 5, 5, 4), jnp.bfloat16))


def test_without_the_library_xla_serves(monkeypatch):
    monkeypatch.setattr(native, "missing", "no library")
    layer = _layer()

    def used(x):
        with native.used():
            return layer(x)

    assert not _has_custom_call(used, jnp.ones((2, 5, 5, 4)))
    monkeypatch.setattr(native, "missing", "")
    monkeypatch.setenv("PODIUM_CONVOLVE", "xla")
    assert not _has_custom_call(used, jnp.ones((2, 5, 5, 4)))


def test_rematerialised_layers_give_the_same_gradient():
    exact = _Exact((4, 9, 9, 16, 16, 3, 1, "SAME"))

    def loss(kernel, x):
        return jnp.sin(convolve(convolve(x, kernel, padding="SAME"), kernel, padding="SAME")).sum()

    plain, again = (jax.jit(jax.grad(f))(exact.kernel, exact.x) for f in (loss, jax.checkpoint(loss)))
    np.testing.assert_allclose(plain, again, rtol=1e-5, atol=1e-3)
