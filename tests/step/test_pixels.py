"""Colours against Pillow's: each factor alone, so that no two can be exchanged, and all three in their order."""

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance

from podium.recipe.images import Data
from podium.step.pixels import normalise_pixels

PLAIN = Data(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
ENHANCE = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast, "saturation": ImageEnhance.Color}
ROUNDING = 2.5 / 255  # Pillow rounds after each change, and the mean of its greys to a whole number


def image(low: int = 60, high: int = 180) -> np.ndarray:
    """Strong in colour and uneven in brightness, and so far from black and white that nothing is clipped."""
    return np.random.default_rng(3).integers(low, high, (12, 10, 3), dtype=np.uint8)


def ours(pixels: np.ndarray, *factors: float) -> np.ndarray:
    return np.asarray(normalise_pixels(jnp.asarray(pixels[None]), PLAIN, jnp.array([factors], jnp.float32)))[0]


def with_pillow(pixels: np.ndarray, **factors: float) -> np.ndarray:
    picture = Image.fromarray(pixels)
    for name, factor in factors.items():
        picture = ENHANCE[name](picture).enhance(factor)
    return np.asarray(picture) / 255


@pytest.mark.parametrize("factor", [0.6, 1.3])
@pytest.mark.parametrize("place", range(3))
def test_each_factor_does_what_its_name_says(place, factor):
    name = list(ENHANCE)[place]
    factors = [1.0, 1.0, 1.0]
    factors[place] = factor
    changed = ours(image(), *factors)
    np.testing.assert_allclose(changed, with_pillow(image(), **{name: factor}), atol=ROUNDING)
    others = [with_pillow(image(), **{other: factor}) for other in ENHANCE if other != name]
    assert all(np.abs(changed - other).max() > 4 * ROUNDING for other in others)


def test_all_three_follow_each_other():
    together = {"brightness": 0.8, "saturation": 0.7, "contrast": 1.2}
    factors = (together["brightness"], together["contrast"], together["saturation"])
    np.testing.assert_allclose(ours(image(), *factors), with_pillow(image(), **together), atol=2 * ROUNDING)


def test_what_leaves_black_and_white_is_cut_off():
    bright = ours(image(0, 256), 1.4, 1.4, 1.4)
    assert bright.min() == 0
    assert bright.max() == 1


def test_factors_are_each_images_own():
    dark, bright = image(20, 80), image(150, 200)
    colours = jnp.array([[1.0, 0.5, 1.0], [0.5, 1.0, 1.0]])
    first, second = np.asarray(normalise_pixels(jnp.stack([dark, bright]), PLAIN, colours))
    np.testing.assert_allclose(first, ours(dark, 1.0, 0.5, 1.0), atol=1e-5)  # contrast is around its own mean
    np.testing.assert_allclose(second, bright / 510, atol=1e-5)


def test_the_mean_is_taken_away_before_the_deviation_divides():
    data = Data(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    plain = np.asarray(normalise_pixels(jnp.asarray(image()[None]), data))[0]
    for channel in range(3):
        expected = (image()[..., channel] / 255 - data.mean[channel]) / data.std[channel]
        np.testing.assert_allclose(plain[..., channel], expected, rtol=1e-5, atol=1e-6)
