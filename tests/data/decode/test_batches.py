"""Boxes and batches: what lies beyond an image, any number of threads, every kind of buffer."""

from types import ModuleType

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.jpegs import BACKENDS, FILES, crop_boxes, jpeg, one, scene

from podium.data import decode
from podium.data.decode import Status
from podium.data.decode.status import Crops


@settings(max_examples=100, deadline=None)
@given(st.integers(-60, 60), st.integers(-60, 60), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_beyond_the_image_is_numpys_reflection(x: int, y: int, width: int, height: int, flip: bool) -> None:
    pixels = scene(width, height, seed=width * 10 + height)
    padded = np.pad(pixels, ((100, 100), (100, 100), (0, 0)), mode="reflect")
    expected = padded[y + 100 : y + 132, x + 100 : x + 132]
    for backend in BACKENDS:
        out = np.empty((1, 32, 32, 3), np.uint8)
        crops = Crops(np.array([(x, y, 32, 32)], np.int32), np.array([flip], np.uint8), out, 1)
        buffers, sizes = decode.Buffers.of([pixels.reshape(-1)]), np.array([(width, height)], np.int32)
        assert decode._DECODERS[backend].resize_batch(buffers, sizes, crops).tolist() == [Status.OK]
        np.testing.assert_array_equal(out[0], expected[:, ::-1] if flip else expected)


def test_shifted_crops_of_a_file_are_reflected_and_not_resampled(either: ModuleType) -> None:
    image = jpeg(scene(32, 32), subsampling=2)
    padded = np.pad(either.decode_pixels(image), ((4, 4), (4, 4), (0, 0)), mode="reflect")
    for x, y in [(-4, -4), (4, 4), (-4, 3), (0, 0)]:
        expected = padded[y + 4 : y + 36, x + 4 : x + 36]
        np.testing.assert_array_equal(one(image, (x, y, 32, 32), False, 32), expected)


def test_threads_do_not_change_the_batch(either: ModuleType) -> None:
    images = [*FILES.values(), b"broken"]
    boxes = np.array([*crop_boxes([either.jpeg_size(image) for image in images[:-1]], seed=5), (0, 0, 1, 1)])
    flips = np.arange(len(images)) % 2 == 0
    batches = []
    for threads in (1, 2, 5):
        out = np.full((len(images), 48, 48, 3), threads, np.uint8)
        statuses = either.decode_batch(images, boxes, flips, out=out, threads=threads)
        assert statuses.tolist() == [Status.OK] * len(FILES) + [Status.NOT_JPEG]
        batches.append(out)
    np.testing.assert_array_equal(batches[0], batches[1])
    np.testing.assert_array_equal(batches[0], batches[2])


def test_images_come_in_any_buffer(either: ModuleType) -> None:
    whole = either.decode_pixels(FILES["444"])
    for image in (bytearray(FILES["444"]), memoryview(FILES["444"]), np.frombuffer(FILES["444"], np.uint8)):
        np.testing.assert_array_equal(either.decode_pixels(image), whole)


def test_an_empty_batch_is_fine(either: ModuleType) -> None:
    out = np.empty((0, 8, 8, 3), np.uint8)
    assert either.decode_batch([], np.empty((0, 4)), np.empty(0), out=out, threads=2).shape == (0,)
