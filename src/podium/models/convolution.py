"""The convolution of a CPU's step: `native/convolve`, forward and for both gradients, with the numbers of XLA's
convolution to rounding (docs/cpu.md).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
from flax import nnx
from jax import lax

from podium.models import native


class _Window(NamedTuple):
    stride: int
    top: int
    left: int
    output: tuple[int, int]


class Conv(nnx.Conv):
    """An `nnx.Conv` of two dimensions, without bias, whose work the native library does where it serves."""

    def __call__(self, inputs: jax.Array, out_sharding: Any = None) -> jax.Array:
        kernel = self.kernel[...]
        if not native.serves(inputs, kernel):
            return super().__call__(inputs, out_sharding)
        stride = self.strides if isinstance(self.strides, int) else 1
        return convolve(inputs, kernel, stride=stride, padding=self.padding)


def convolve(x: jax.Array, kernel: jax.Array, *, stride: int = 1, padding: Any) -> jax.Array:
    """[n, h, w, c] by [kh, kw, c, k], both fp32; `padding` as `lax.conv_general_dilated` has it."""
    size, taps = x.shape[1:3], kernel.shape[:2]
    pads = lax.padtype_to_pads(size, taps, (stride, stride), padding) if isinstance(padding, str) else padding
    rows, columns = ((s + sum(p) - t) // stride + 1 for s, p, t in zip(size, pads, taps, strict=True))
    window = _Window(stride, pads[0][0], pads[1][0], (rows, columns))
    return _convolve(window, *native.vary_alike(x, kernel))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _convolve(window: _Window, x: jax.Array, kernel: jax.Array) -> jax.Array:
    shape = (x.shape[0], *window.output, kernel.shape[-1])
    return native.call("convolve", shape, x, kernel, numbers=_numbers(window))


def _forward(window: _Window, x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Any]:
    return _convolve(window, x, kernel), (x, kernel)


def _backward(window: _Window, residuals: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = residuals
    numbers = _numbers(window)
    dx = native.call("convolve_data_gradient", x.shape, dy, kernel, numbers=numbers)
    dkernel = native.call("convolve_weight_gradient", kernel.shape, x, dy, numbers=numbers)
    return dx, dkernel


_convolve.defvjp(_forward, _backward)


def _numbers(window: _Window) -> tuple[int, ...]:
    return window.stride, window.top, window.left
