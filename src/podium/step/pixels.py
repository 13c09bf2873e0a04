"""From the decoder's bytes to what the network sees: colours changed, then normalised, on the device."""

import jax
import jax.numpy as jnp

from podium.recipe.schema import Data


def normalise_pixels(image: jax.Array, data: Data, colour: jax.Array | None = None) -> jax.Array:
    """uint8 → normalised fp32, colours changed by factors [batch, 3] of brightness, contrast, saturation."""
    x = image.astype(jnp.float32) / 255
    if colour is not None:
        brightness, contrast, saturation = (colour[:, i, None, None, None] for i in range(3))
        x = x * brightness
        luma = (x * jnp.array([0.299, 0.587, 0.114])).sum(-1, keepdims=True)
        x = luma + saturation * (x - luma)
        middle = luma.mean((1, 2), keepdims=True)
        x = jnp.clip(middle + contrast * (x - middle), 0.0, 1.0)
    return (x - jnp.array(data.mean)) / jnp.array(data.std)
