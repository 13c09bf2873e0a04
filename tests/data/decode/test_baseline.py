"""Podium's own decoder against libjpeg-turbo, bit for bit: every sampling, odd sizes, qualities, tables and
coefficients, whole images and crops, with the seek index and without, in AVX-512 (where the processor has it), AVX2
and plain C++. Where the native library was not built there is nothing to test.
"""

from collections.abc import Sequence

import imagecodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.coefficients import Frame, write_jpeg
from tests.support.jpegs import FILES, Box, Pixels, crop_boxes, jpeg, real_images, scene

from podium.data.decode import Buffers, DecodeError, Status, native
from podium.data.decode.buffers import view
from podium.data.decode.status import Crops, Int32

OURS = {"native": native.own, "avx2": native.NativeDecoder(native.AVX2), "plain": native.NativeDecoder(native.PLAIN)}
SAMPLINGS = {"444": (1, 1), "422": (2, 1), "440": (1, 2), "420": (2, 2)}


def encoded(pixels: Pixels, sampling: str, quality: int, optimize: bool = False) -> bytes:
    if sampling == "grey":
        return jpeg(pixels, "L", quality=quality, optimize=optimize)
    return bytes(imagecodecs.jpeg8_encode(pixels, level=quality, subsampling=sampling, optimize=optimize))


def crops(
    decoder: native.NativeDecoder,
    images: Sequence[bytes],
    boxes: Sequence[Box],
    indexes: Sequence[bytes | None] | None = None,
) -> tuple[Int32, Pixels]:
    out = np.full((len(images), 32, 32, 3), 77, np.uint8)
    stale = np.full(len(images), 7, np.uint8)
    work = Crops(np.array(boxes, np.int32), np.zeros(len(images), np.uint8), out, 2)
    statuses = decoder.decode_batch(
        Buffers.of(images), work, None if indexes is None else Buffers.of(indexes), stale=stale
    )
    assert not stale.any()
    return statuses, out


def status_of(decoder: native.NativeDecoder, image: bytes) -> tuple[int, Pixels | None]:
    try:
        return Status.OK, decoder.decode_pixels(view(image))
    except DecodeError as error:
        return error.status, None


def check_alike(image: bytes, boxes: Sequence[Box] = ()) -> None:
    """All ways to decode a file of our kind agree with libjpeg."""
    whole = native.libjpeg.decode_pixels(view(image))
    index = native.own.build_index(view(image))
    assert index is not None, "left to libjpeg, so nothing was compared"
    assert len(index) <= max(len(image) // 25, 16)
    images, indexes = [image] * len(boxes), [index] * len(boxes)
    expected = crops(native.libjpeg, images, boxes)[1]
    for name, decoder in OURS.items():
        np.testing.assert_array_equal(decoder.decode_pixels(view(image)), whole, err_msg=name)
        assert decoder.build_index(view(image)) == index
        for given_indexes in (None, indexes):
            statuses, out = crops(decoder, images, boxes, given_indexes)
            assert not statuses.any()
            np.testing.assert_array_equal(out, expected, err_msg=f"{name}, {'with' if given_indexes else 'no'} index")


if not native.missing:

    @pytest.mark.parametrize("sampling", [*SAMPLINGS, "grey"])
    @pytest.mark.parametrize(
        ("width", "height"), [(1, 1), (5, 3), (8, 8), (15, 17), (16, 16), (17, 33), (64, 47), (149, 117), (301, 40)]
    )
    def test_every_sampling_and_size_is_libjpegs(sampling: str, width: int, height: int) -> None:
        image = encoded(scene(width, height), sampling, 90)
        if width <= 4 and SAMPLINGS.get(sampling, (1, 1))[0] == 2:
            assert native.own.build_index(view(image)) is None  # libjpeg has another rule for so narrow chroma
            return
        check_alike(image, crop_boxes([(width, height)] * 12, seed=width))

    @pytest.mark.parametrize("sampling", ["444", "420"])
    @pytest.mark.parametrize("quality", [1, 3, 10, 30, 50, 75, 85, 95, 98, 100])
    def test_every_quality_is_libjpegs(sampling: str, quality: int) -> None:
        noise = np.random.default_rng(quality).integers(0, 256, (80, 100, 3), np.uint8)
        for pixels in (scene(100, 80), noise):
            for optimize in (False, True):
                check_alike(encoded(pixels, sampling, quality, optimize), [(9, 7, 70, 60)])

    def test_real_images_are_libjpegs() -> None:
        images = list(real_images())[::3] or [FILES["444"], FILES["420"], FILES["grey"]]
        sizes = [native.libjpeg.jpeg_size(view(image)) for image in images]
        indexes = [native.own.build_index(view(image)) for image in images]
        assert sum(index is not None for index in indexes) > 0.9 * len(images)
        for image in images:
            whole = native.libjpeg.decode_pixels(view(image))
            np.testing.assert_array_equal(native.own.decode_pixels(view(image)), whole)
        boxes = crop_boxes(sizes, seed=6)
        expected = crops(native.libjpeg, images, boxes)[1]
        for decoder in OURS.values():
            for given_indexes in (None, indexes):
                np.testing.assert_array_equal(crops(decoder, images, boxes, given_indexes)[1], expected)

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def test_any_crop_of_any_size_is_libjpegs(data: st.DataObject) -> None:
        width, height = data.draw(st.integers(5, 120)), data.draw(st.integers(1, 120))
        sampling = data.draw(st.sampled_from([*SAMPLINGS, "grey"]))
        image = encoded(scene(width, height, seed=width), sampling, data.draw(st.integers(60, 100)))
        x, y = data.draw(st.integers(-width, 2 * width)), data.draw(st.integers(-height, 2 * height))
        check_alike(image, [(x, y, data.draw(st.integers(1, width)), data.draw(st.integers(1, height)))])

    @pytest.mark.parametrize("sampling", [*SAMPLINGS, "grey"])
    @pytest.mark.parametrize("largest", [60, 1023, 8191, 16383])
    @pytest.mark.parametrize("shortest", [1, 4, 12])
    def test_extreme_coefficients_wrap_and_saturate_as_in_libjpeg(sampling: str, largest: int, shortest: int) -> None:
        """Products beyond 16 bits, blocks of a DC coefficient alone, and codes that no look-up holds."""
        rng = np.random.default_rng(largest + shortest)
        factors = [(1, 1)] if sampling == "grey" else [SAMPLINGS[sampling], (1, 1), (1, 1)]
        frame = Frame(70, 53, factors)
        blocks = []
        for c in range(len(factors)):
            values = rng.integers(-largest, largest + 1, (*frame.blocks(c), 64))
            density = rng.choice([0.0, 0.05, 0.5, 1.0], (*frame.blocks(c), 1))
            blocks.append(np.where((rng.random(values.shape) < density) | (np.arange(64) == 0), values, 0))
        for quantizers in (rng.integers(1, 256, (3, 64)), rng.integers(1, 65536, (3, 64)), np.full((3, 64), 1)):
            image = write_jpeg(frame, blocks, quantizers[: len(factors)].tolist(), shortest)
            check_alike(image, [(0, 0, 70, 53), (11, 5, 40, 40)])

    @pytest.mark.parametrize(
        "name", ["cmyk", "progressive-444", "progressive-420", "restart-444", "restart-420", "rgb"]
    )
    def test_other_kinds_are_left_to_libjpeg(name: str) -> None:
        image = FILES[name]
        for decoder in OURS.values():
            assert decoder.build_index(view(image)) is None
            np.testing.assert_array_equal(decoder.decode_pixels(view(image)), native.libjpeg.decode_pixels(view(image)))

    @pytest.mark.parametrize(
        ("transform", "ours"), [(b"\x00", False), (b"\x01", True), (b"\x02", False)], ids=["rgb", "ycc", "ycck"]
    )
    def test_colours_are_read_as_libjpeg_reads_them(transform: bytes, ours: bool) -> None:
        jfif = jpeg(scene(40, 30), subsampling=0)
        assert jfif[2:4] == b"\xff\xe0"
        bare = jfif[:2] + jfif[4 + int.from_bytes(jfif[4:6], "big") :]
        adobe = bare[:2] + b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + transform + bare[2:]
        renamed = bare.replace(b"\x01\x11\x00\x02\x11\x01\x03\x11\x01", b"\x52\x11\x00\x47\x11\x01\x42\x11\x01")
        renamed = renamed.replace(b"\x03\x01\x00\x02\x11\x03\x11", b"\x03\x52\x00\x47\x11\x42\x11")
        assert renamed != bare
        for image, is_ours in ((bare, True), (adobe, ours), (renamed, False)):
            assert (native.own.build_index(view(image)) is not None) == is_ours
            expected = native.libjpeg.decode_pixels(view(image))
            np.testing.assert_array_equal(native.own.decode_pixels(view(image)), expected)

    @pytest.mark.parametrize("sampling", [*SAMPLINGS, "grey"])
    def test_a_crop_sees_the_missing_codes_that_libjpeg_sees(sampling: str) -> None:
        """Also those beside it, and those of the row of MCUs below it, where upsampling looks at its samples."""
        image = encoded(scene(40, 100), sampling, 90)
        scan = image.find(b"\xff\xda")
        boxes = [(0, 0, 7, bottom) for bottom in range(1, 101)]
        for share in (0.3, 0.5, 0.8):
            cut = image[: scan + int(share * (len(image) - scan))] + b"\xff\xd9"
            expected = crops(native.libjpeg, [cut] * 100, boxes)
            assert set(expected[0].tolist()) == {Status.OK, Status.CORRUPT}
            for decoder in OURS.values():
                got = crops(decoder, [cut] * 100, boxes)
                np.testing.assert_array_equal(got[0], expected[0])
                np.testing.assert_array_equal(got[1], expected[1])

    @settings(max_examples=400, deadline=None)
    @given(st.data())
    def test_a_damaged_file_fares_as_in_libjpeg(data: st.DataObject) -> None:
        damaged = bytearray(FILES[data.draw(st.sampled_from(["444", "422", "420", "grey", "optimized"]))])
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(2, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        image = bytes(damaged)
        expected = status_of(native.libjpeg, image)
        box = [(30, 40, 50, 33)]
        expected_crop = crops(native.libjpeg, [image], box)
        for decoder in OURS.values():
            got = status_of(decoder, image)
            assert got[0] == expected[0]
            np.testing.assert_array_equal(got[1], expected[1])
            got_crop = crops(decoder, [image], box)
            assert got_crop[0].tolist() == expected_crop[0].tolist()
            np.testing.assert_array_equal(got_crop[1], expected_crop[1])
