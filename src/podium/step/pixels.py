"""From the decoder's bytes to what the network sees: colours changed, then normalised, on the device. Images that are
packed for a TPU (`recipe.batch`) stay so."""

import jax
import jax.numpy as jnp

from podium.recipe.schema import Data, Recipe


def packs_images(recipe: Recipe, *, on_tpu: bool) -> bool:
    """Whether the step takes packed images, with which ResNet's first layers compute on columns side by side: that
    saves a TPU 14 % of the step's cycles (docs/decisions/006). CPUs and GPUs have no idle lanes to fill, and would
    multiply the zeros of such kernels for nothing."""
    model = recipe.model
    fits = model.stem == "conv7" and model.padding == "symmetric" and recipe.data.image_size % 8 == 0
    takes_apart = recipe.evaluate_flips or recipe.evaluate_shift or recipe.accumulate > 1
    return on_tpu and fits and not takes_apart


def normalise_pixels(image: jax.Array, data: Data, colour: jax.Array | None = None) -> jax.Array:
    """uint8 [batch, height, width, 3] → normalised fp32, colours changed by factors [batch, 3] of brightness, contrast
    and saturation; or packed images, and the same as they would be."""
    x = image.astype(jnp.float32) / 255
    if colour is not None:
        x = _changed(x, colour)
    pixels = image.shape[-1] // 3
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
