"""From the decoder's bytes to what the network sees: colours changed, rectangles erased, neighbours mixed, then
normalised, on the device. Images that are packed for a TPU (`recipe.batch`) stay so."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from podium.errors import UserError
from podium.recipe.batch import PACKED_COLUMNS, PACKED_ROWS
from podium.recipe.images import Data
from podium.recipe.schema import Recipe
from podium.step.state import Batch


def packs_images(recipe: Recipe, *, on_tpu: bool) -> bool:
    """Whether the step takes packed images, with which ResNet's first layers compute on columns side by side: that
    saves a TPU 14 % of the step's cycles (docs/decisions/006). CPUs and GPUs have no idle lanes to fill, and would
    multiply the zeros of such kernels for nothing."""
    model, sizes = recipe.model, (*recipe.data.train_sizes, recipe.data.evaluation_size)
    fits = model.stem == "conv7" and model.padding == "symmetric" and not any(size % 8 for size in sizes)
    takes_apart = recipe.evaluate_flips or recipe.evaluate_shift or recipe.accumulate > 1
    return on_tpu and fits and not takes_apart


def network_input(batch: Batch, data: Data) -> jax.Array:
    """What the network is given of a batch: its images, with all changes that stand beside them."""
    mix, erase = batch.get("mix"), batch.get("erase")
    if mix is None and erase is None:
        return normalise_pixels(batch["image"], data, batch.get("colour"))
    x = _coloured(batch["image"], batch.get("colour"))
    pixels = _Pixels.of(x.shape)
    x = x.reshape(pixels.shape)
    if erase is not None:
        x = jnp.where(pixels.inside(erase), jnp.array(data.mean), x)
    if mix is not None:
        partner, kept = neighbours(x, pixels.batch), pixels.by_example(mix[:, 0])
        x = jnp.where(pixels.inside(mix[:, 1:5]), partner, kept * x + (1 - kept) * partner)
    return _normalised(x.reshape(batch["image"].shape), data)


def normalise_pixels(image: jax.Array, data: Data, colour: jax.Array | None = None) -> jax.Array:
    """uint8 [batch, height, width, 3] → normalised fp32, colours changed by factors [batch, 3] of brightness, contrast
    and saturation; or packed images, and the same as they would be."""
    return _normalised(_coloured(image, colour), data)


def neighbours(x: jax.Array, axis: int = 0) -> jax.Array:
    """Each example's partner in the place of it: those at 2k and 2k + 1 change places."""
    n = x.shape[axis]
    if n % 2:
        raise UserError(
            f"augment.mixup and augment.cutmix mix neighbours in a batch, and a chip takes {n} images at once; choose "
            f"batch_global, torus and accumulate so that the number is even"
        )
    pairs = x.reshape(*x.shape[:axis], n // 2, 2, *x.shape[axis + 1 :])
    return jnp.flip(pairs, axis + 1).reshape(x.shape)


@dataclass(frozen=True)
class _Pixels:
    """Where each pixel of an array of images is, whether they are packed or not."""

    shape: tuple[int, ...]
    """With an axis of its own for colours, and for rows and columns inside a block of packed images."""
    batch: int
    """The axis of the examples."""
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @staticmethod
    def of(shape: tuple[int, ...]) -> "_Pixels":
        if shape[-1] == 3:
            return _Pixels(shape, 0, (1,), (2,))
        return _Pixels((*shape[:-1], PACKED_ROWS, PACKED_COLUMNS, 3), 2, (0, 3), (1, 4))

    def by_example(self, values: jax.Array) -> jax.Array:
        """[batch], to stand beside the pixels."""
        return values.reshape([len(values) if axis == self.batch else 1 for axis in range(len(self.shape))])

    def inside(self, boxes: jax.Array) -> jax.Array:
        """Whether each pixel is inside its example's box [batch, (left, top, right, bottom)]."""
        left, top, right, bottom = (self.by_example(edge) for edge in boxes.T)
        row, column = self._number(self.rows), self._number(self.columns)
        return (left <= column) & (column < right) & (top <= row) & (row < bottom)

    def _number(self, axes: tuple[int, ...]) -> jax.Array:
        number = jnp.zeros((1,) * len(self.shape), jnp.int32)
        for axis in axes:
            of_axis = [n if k == axis else 1 for k, n in enumerate(self.shape)]
            number = number * self.shape[axis] + lax.broadcasted_iota(jnp.int32, of_axis, axis)
        return number


def _coloured(image: jax.Array, colour: jax.Array | None) -> jax.Array:
    x = image.astype(jnp.float32) / 255
    return x if colour is None else _changed(x, colour)


def _normalised(x: jax.Array, data: Data) -> jax.Array:
    pixels = x.shape[-1] // 3
    return (x - jnp.tile(jnp.array(data.mean), pixels)) / jnp.tile(jnp.array(data.std), pixels)


def _changed(x: jax.Array, colour: jax.Array) -> jax.Array:
    # Of packed images [h/2, w/8, batch, 48] the batch is the third axis, and the last holds many pixels.
    batch = 0 if x.shape[-1] == 3 else 2
    pixels = x.reshape(*x.shape[:-1], -1, 3)
    of_example = [axis for axis in range(5) if axis != batch]
    brightness, contrast, saturation = (jnp.expand_dims(colour[:, i], of_example) for i in range(3))
    pixels = pixels * brightness
    luma = (pixels * jnp.array([0.299, 0.587, 0.114])).sum(-1, keepdims=True)
    pixels = luma + saturation * (pixels - luma)
    middle = luma.mean(of_example, keepdims=True)
    return jnp.clip(middle + contrast * (pixels - middle), 0.0, 1.0).reshape(x.shape)
