"""Broken files, absurd boxes and wrong arrays: each has its status or its error, and harms no other image."""

import io
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tests.support.jpegs import FILES, SCENE, Box, Pixels, jpeg, one

from podium.data import decode
from podium.data.decode import Buffers, Status, native
from podium.data.decode.status import Crops


def with_size(image: bytes, width: int, height: int) -> bytes:
    """The same file claiming another size in its frame header."""
    at = next(i for i in range(len(image)) if image[i] == 0xFF and image[i + 1] in (0xC0, 0xC2))
    return image[: at + 5] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + image[at + 9 :]


def png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(SCENE).save(buffer, "PNG")
    return buffer.getvalue()


BROKEN = {
    "empty": (b"", Status.NOT_JPEG),
    "two bytes": (b"\xff\xd8", Status.NOT_JPEG),
    "png": (png(), Status.NOT_JPEG),
    "garbage": (bytes(range(256)) * 40, Status.NOT_JPEG),
    "cut in the scan": (FILES["444"][:-200], Status.TRUNCATED),
    "cut last byte": (FILES["420"][:-1], Status.TRUNCATED),
    "cut progressive": (FILES["progressive-420"][: len(FILES["progressive-420"]) // 2], Status.TRUNCATED),
    "65500 x 65500": (with_size(FILES["444"], 65500, 65500), Status.TOO_LARGE),
    "12000 x 6000": (with_size(FILES["444"], 12000, 6000), Status.TOO_LARGE),
    "no image inside": (b"\xff\xd8\xff\xd9", Status.CORRUPT),
}
GOOD = FILES["420"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_image_has_a_status_and_harms_no_other(name: str, either: ModuleType) -> None:
    image, status = BROKEN[name]
    out = np.full((3, 24, 24, 3), 99, np.uint8)
    boxes = np.array([(3, 2, 60, 50), (0, 0, 1, 1), (3, 2, 60, 50)])
    statuses = either.decode_batch([GOOD, image, GOOD], boxes, np.zeros(3), out=out, threads=2)
    assert statuses.tolist() == [Status.OK, status, Status.OK]
    assert not out[1].any()
    np.testing.assert_array_equal(out[0], one(GOOD, (3, 2, 60, 50), False, 24))
    np.testing.assert_array_equal(out[2], out[0])
    with pytest.raises(decode.DecodeError) as raised:
        either.decode_pixels(image)
    assert raised.value.status == status
    assert str(raised.value) == decode.status_message(status)
    with pytest.raises(decode.DecodeError):
        either.jpeg_size(image)


def test_a_missing_tail_is_seen_by_a_crop_above_it(either: ModuleType) -> None:
    out = np.empty((1, 8, 8, 3), np.uint8)
    statuses = either.decode_batch([FILES["444"][:-300]], np.array([(0, 0, 8, 8)]), np.zeros(1), out=out, threads=1)
    assert statuses.tolist() == [Status.TRUNCATED]


@pytest.mark.parametrize("name", ["444", "progressive-420"])
def test_a_scan_that_ends_too_early_is_corrupt(name: str) -> None:
    image = FILES[name][: len(FILES[name]) // 2] + b"\xff\xd9"
    with pytest.raises(decode.DecodeError) as raised:
        decode.decode_pixels(image)
    assert raised.value.status in (Status.CORRUPT, Status.TRUNCATED)


if not native.missing:

    def status_with(image: bytes, scans: int) -> Status:
        """What becomes of a progressive file whose first scan is there so many times."""
        begin = image.find(b"\xff\xda")
        end = image.find(b"\xff\xc4", begin)  # the tables of the second scan
        endless = image[:begin] + image[begin:end] * scans + image[end:]
        out = np.empty((1, 8, 8, 3), np.uint8)
        crops = Crops(np.array([(0, 0, 9, 9)], np.int32), np.zeros(1, np.uint8), out, 1)
        return Status(native.own.decode_batch(Buffers.of([endless]), crops, None, stale=None)[0])

    def test_a_progressive_file_of_endless_scans_is_refused() -> None:
        image = FILES["progressive-444"]
        assert [status_with(image, scans) for scans in (50, 150)] == [Status.OK, Status.TOO_LARGE]

    def test_the_scans_of_a_large_progressive_file_have_a_budget_of_pixels() -> None:
        """A billion pixel visits take seconds: 95 scans of 12 megapixels are too many, though 95 scans are not."""
        large = jpeg(np.zeros((3000, 4000, 3), np.uint8), "L", progressive=True)
        small = jpeg(np.zeros((30, 40, 3), np.uint8), "L", progressive=True)
        assert [status_with(small, 93), status_with(large, 80)] == [Status.OK, Status.OK]
        assert status_with(large, 93) == Status.TOO_LARGE


def test_trailing_bytes_after_the_end_are_harmless(either: ModuleType) -> None:
    padded = FILES["444"] + b"\0" * 1000
    np.testing.assert_array_equal(either.decode_pixels(padded), either.decode_pixels(FILES["444"]))


@pytest.mark.parametrize(
    "box",
    [
        (0, 0, 0, 5),
        (0, 0, 5, 0),
        (0, 0, -3, 5),
        (2**31 - 1, 0, 5, 5),
        (-(2**31), 0, 5, 5),
        (0, 2**21, 5, 5),
        (0, 0, 2**21, 1),
        (0, 0, 1, 2**21),
        (0, 0, 2**20, 2**20),
    ],
)
def test_absurd_boxes_have_a_status(box: Box, either: ModuleType) -> None:
    out = np.full((1, 8, 8, 3), 99, np.uint8)
    assert either.decode_batch([GOOD], np.array([box]), np.zeros(1), out=out, threads=1).tolist() == [Status.BAD_BOX]
    assert not out.any()
    out[:] = 99
    assert either.resize_batch([SCENE], np.array([box]), np.zeros(1), out=out, threads=1).tolist() == [Status.BAD_BOX]
    assert not out.any()


@pytest.mark.parametrize(
    ("boxes", "flips", "out", "threads"),
    [
        (np.zeros((2, 4)), np.zeros(1), np.empty((1, 8, 8, 3), np.uint8), 1),
        (np.zeros((1, 4)), np.zeros(2), np.empty((1, 8, 8, 3), np.uint8), 1),
        (np.zeros((1, 4)), np.zeros(1), np.empty((1, 8, 9, 3), np.uint8), 1),
        (np.zeros((1, 4)), np.zeros(1), np.empty((2, 8, 8, 3), np.uint8), 1),
        (np.zeros((1, 4)), np.zeros(1), np.empty((1, 8, 8, 3), np.int8), 1),
        (np.zeros((1, 4)), np.zeros(1), np.empty((1, 8, 8, 6), np.uint8)[..., ::2], 1),
        (np.zeros((1, 4)), np.zeros(1), np.empty((1, 8, 8, 3), np.uint8), 0),
    ],
)
def test_wrong_arrays_never_reach_the_library(
    boxes: NDArray[np.float64], flips: NDArray[np.float64], out: Pixels, threads: int
) -> None:
    with pytest.raises(ValueError):
        decode.decode_batch([GOOD], boxes, flips, out=out, threads=threads)
    with pytest.raises(ValueError):
        decode.resize_batch([SCENE], boxes, flips, out=out, threads=threads)


def test_pixels_that_are_not_rgb_rows_are_refused() -> None:
    out = np.empty((1, 8, 8, 3), np.uint8)
    images: list[Any] = [SCENE[:, ::2], SCENE[..., 0], SCENE.astype(np.float32)]
    for image in images:
        with pytest.raises(ValueError, match="image 0"):
            decode.resize_batch([image], np.array([(0, 0, 4, 4)]), np.zeros(1), out=out, threads=1)


@pytest.mark.parametrize("sizes", [None, np.array([(1, 1, 1)]), np.array([(3, 5)]), np.array([(-4, -4)])])
def test_sizes_that_are_not_those_of_the_pixels_never_reach_the_library(sizes: NDArray[np.int64] | None) -> None:
    pixels, out = np.zeros(4 * 4 * 3, np.uint8), np.empty((1, 8, 8, 3), np.uint8)
    with pytest.raises(ValueError):
        decode.resize_batch(
            decode.Buffers.of([pixels]), np.array([(0, 0, 4, 4)]), np.zeros(1), out=out, threads=1, sizes=sizes
        )


def test_an_image_without_pixels_has_a_status(either: ModuleType) -> None:
    pixels, out = np.full(4 * 4 * 3, 7, np.uint8), np.ones((2, 8, 8, 3), np.uint8)
    boxes, sizes = np.array([(0, 0, 4, 4)] * 2), np.array([(4, 4), (0, 0)])
    statuses = either.resize_batch(
        decode.Buffers.of([pixels, None]), boxes, np.zeros(2), out=out, threads=1, sizes=sizes
    )
    assert statuses.tolist() == [Status.OK, Status.BAD_BOX]
    assert (out[0] == 7).all()
    assert not out[1].any()
