"""Operations of the augmentation policies: NumPy beside Pillow, and the native library beside NumPy, to the bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from podium.data.decode import native
from podium.data.decode.change import NUMBERS, ONE, Kind, change_batch, changed
from podium.data.input import counter_rng
from podium.data.input.policy import affine, policy_operations
from podium.recipe.augmentation import Augment

FILL = np.array([10, 120, 250], np.uint8)
MATRIX = (0.9, 0.2, -1.5, -0.1, 1.1, 2.25)


def picture(seed, size=24):
    rng = np.random.default_rng(seed)
    smooth = rng.integers(40, 200, (4, 4, 3), dtype=np.uint8)
    resized = np.asarray(Image.fromarray(smooth).resize((size, size), Image.Resampling.BILINEAR))
    return (resized.astype(int) + rng.integers(-9, 10, resized.shape)).clip(0, 255).astype(np.uint8)


def operation(kind, *numbers):
    found = np.zeros(NUMBERS, np.int32)
    found[: 1 + len(numbers)] = kind, *numbers
    return found


def enhanced(enhancer, factor):
    return lambda image: enhancer(image).enhance(factor)


@pytest.mark.parametrize(
    ("of_ours", "of_pillow", "off_by"),
    [
        (operation(Kind.NOTHING), lambda image: image, 0),
        (operation(Kind.INVERT), ImageOps.invert, 0),
        (operation(Kind.EQUALIZE), ImageOps.equalize, 0),
        (operation(Kind.AUTOCONTRAST), ImageOps.autocontrast, 1),
        (operation(Kind.POSTERIZE, 3), lambda image: ImageOps.posterize(image, 3), 0),
        (operation(Kind.SOLARIZE, 100), lambda image: ImageOps.solarize(image, 100), 0),
        (operation(Kind.BRIGHTNESS, 1.5 * ONE), enhanced(ImageEnhance.Brightness, 1.5), 1),
        (operation(Kind.CONTRAST, 0.3 * ONE), enhanced(ImageEnhance.Contrast, 307 / 1024), 1),
        (operation(Kind.SATURATION, 1.9 * ONE), enhanced(ImageEnhance.Color, 1945 / 1024), 1),
        (operation(Kind.SHARPNESS, 1.9 * ONE), enhanced(ImageEnhance.Sharpness, 1945 / 1024), 1),
        (operation(Kind.SHARPNESS, 0.1 * ONE), enhanced(ImageEnhance.Sharpness, 102 / 1024), 1),
        (
            operation(Kind.AFFINE, *affine(*MATRIX)),
            lambda image: image.transform(image.size, Image.Transform.AFFINE, MATRIX, fillcolor=tuple(FILL.tolist())),
            0,
        ),
    ],
)
def test_operations_are_pillows(of_ours, of_pillow, off_by):
    for seed in range(3):
        image = picture(seed)
        found = changed(image, of_ours, FILL).astype(int)
        expected = np.asarray(of_pillow(Image.fromarray(image))).astype(int)
        assert abs(found - expected).max() <= off_by
        assert of_ours[0] == Kind.NOTHING or (found != image).any()


@pytest.mark.parametrize("factor", [ONE // 3, ONE // 2, 3 * ONE // 2])
def test_blends_are_rounded_to_the_nearest(factor):
    """Pillow cuts the fraction off, which would make every blend half a step darker."""
    values = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, -1)
    expected = np.floor(values * (factor / ONE) + 0.5).clip(0, 255)
    np.testing.assert_array_equal(changed(values, operation(Kind.BRIGHTNESS, factor), FILL), expected)


def test_darker_values_are_raised_by_solarize_add():
    image = np.array([0, 100, 127, 128, 255] * 5, np.uint8).reshape(5, 5, 1).repeat(3, -1)
    raised = changed(image, operation(Kind.SOLARIZE_ADD, 50), FILL)
    assert raised[0, :, 0].tolist() == [50, 150, 177, 128, 255]


@pytest.mark.skipif(bool(native.missing), reason="there is no native library")
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31), size=st.integers(1, 40), each=st.integers(1, 3), threads=st.integers(1, 3),
    policy=st.sampled_from(["trivial", "random"]), flat=st.booleans(),
)  # fmt: skip
def test_the_native_library_gives_numpys_bits(seed, size, each, threads, policy, flat):
    augment = Augment(policy=policy, operations=each, operation_share=1.0, magnitude=8, magnitude_spread=3)
    images = np.stack([picture(seed + k, size) for k in range(4)])
    images[0] = images[0] // 200 if flat else images[0]
    operations = policy_operations(augment, counter_rng.key(seed, np.arange(4)), size)
    expected = images.copy()
    for image, of_image in zip(expected, operations, strict=True):
        for one in of_image:
            image[:] = changed(image, one, FILL)
    change_batch(images, operations, FILL, threads=threads)
    np.testing.assert_array_equal(images, expected)


def test_without_the_library_numpy_serves(monkeypatch):
    images, operations = picture(0)[None].copy(), operation(Kind.INVERT)[None, None]
    monkeypatch.setattr(native, "missing", "for this test")
    change_batch(images, operations, FILL, threads=2)
    np.testing.assert_array_equal(images[0], 255 - picture(0))


def test_arrays_of_another_form_are_refused():
    images, operations = np.zeros((2, 8, 8, 3), np.uint8), np.zeros((2, 1, NUMBERS), np.int32)
    with pytest.raises(ValueError, match="do not fit"):
        change_batch(images, operations[:1], FILL, threads=1)
    with pytest.raises(ValueError, match="need contiguous uint8"):
        change_batch(images[:, ::2], operations, FILL, threads=1)
    with pytest.raises(ValueError, match="need contiguous int32"):
        change_batch(images, operations.astype(np.int64), FILL, threads=1)
