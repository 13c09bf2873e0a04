"""What is a whole JPEG, what is re-encoded, what is broken."""

import io
import struct
import sys
import tarfile
from typing import Any

import imagecodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.support.made_sources import jpeg, test_data, undecodable_jpeg

from podium.data.dataset.jpeg import PIXELS_MAX, BadImage, jpeg_header, trainable_jpeg
from podium.data.decode import decode_pixels


def _frame(image: bytes, change: object) -> bytes:
    """The JPEG with its frame header (bits, height, width, components) changed."""
    at = next(i for i in range(len(image)) if image[i] == 0xFF and image[i + 1] in (0xC0, 0xC2))
    marker, fields = image[at + 1], struct.unpack_from(">BHHB", image, at + 4)
    marker, fields = change(marker, *fields)  # type: ignore[operator]
    return image[: at + 1] + bytes([marker]) + image[at + 2 : at + 4] + struct.pack(">BHHB", *fields) + image[at + 10 :]


def _sampling(image: Any) -> set[tuple[int, int]]:
    """The sampling factors of an open JPEG's components."""
    return {(across, down) for _, across, down, _ in image.layer}


PLAIN = {
    "colour": jpeg(1),
    "grey": jpeg(2, mode="L"),
    "progressive": jpeg(3, progressive=True),
    "restart markers": jpeg(4, restart_marker_blocks=1),
    "4:2:0": jpeg(5, subsampling="4:2:0"),
    "one pixel": jpeg(6, (1, 1)),
    "a thumbnail in its EXIF": jpeg(7, exif=b"Exif\0\0" + jpeg(8)),
    "padding after the end": jpeg(9) + bytes(100),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_jpegs_stay_bit_for_bit(name: str) -> None:
    image = PLAIN[name]
    with Image.open(io.BytesIO(image)) as reference:
        size = reference.size
    assert trainable_jpeg(image, decode_pixels) == (image, *size, False)


def test_real_images_stay_bit_for_bit() -> None:
    place = test_data()
    if place is None:
        return
    with tarfile.open(place / "imagenet-sample.tar") as tar:
        for member in tar:
            image = tar.extractfile(member).read()  # type: ignore[union-attr]
            with Image.open(io.BytesIO(image)) as reference:
                assert trainable_jpeg(image) == (image, *reference.size, False), member.name


@pytest.mark.parametrize(
    ("image", "mode"),
    [
        (jpeg(1, format="PNG"), "RGB"),
        (jpeg(1, format="PNG", mode="L"), "L"),
        (jpeg(1, format="PNG", mode="RGBA"), "RGB"),
        (jpeg(1, format="PNG", mode="1"), "L"),
        (jpeg(1, format="GIF", mode="P"), "RGB"),
        (jpeg(1, format="BMP"), "RGB"),
        (jpeg(1, format="WEBP", lossless=True), "RGB"),
        (jpeg(1, format="TIFF"), "RGB"),
        (jpeg(1, mode="CMYK"), "RGB"),
    ],
)
def test_other_formats_become_good_jpegs(image: bytes, mode: str) -> None:
    stored, width, height, changed = trainable_jpeg(image)
    assert changed
    assert (width, height) == (24, 16)
    assert jpeg_header(stored).trainable
    with Image.open(io.BytesIO(image)) as before, Image.open(io.BytesIO(stored)) as after:
        assert after.mode == mode
        assert after.mode == "L" or _sampling(after) == {(1, 1)}, "chroma is subsampled"
        difference = np.asarray(before.convert(mode), np.int16) - np.asarray(after, np.int16)
    assert np.abs(difference).mean() < 3  # noise is the worst case there is


@pytest.mark.parametrize("shape", [(48, 64, 3), (30, 20)])
def test_a_jpeg_of_twelve_bits_is_re_encoded_with_eight(shape: tuple[int, ...]) -> None:
    pixels = np.linspace(0, 4095, int(np.prod(shape))).astype(np.uint16).reshape(shape)
    image = bytes(imagecodecs.jpeg8_encode(pixels, level=98, bitspersample=12))
    assert jpeg_header(image).bits == 12
    encoded, width, height, changed = trainable_jpeg(image)
    assert (height, width, changed) == (*shape[:2], True)
    decoded = decode_pixels(encoded).astype(int)
    wanted = (pixels >> 4).astype(int)
    assert np.abs(decoded - (wanted if wanted.ndim == 3 else wanted[..., None])).mean() < 1.5


def test_a_jpeg_of_twelve_bits_is_left_out_with_advice_where_nothing_reads_it(monkeypatch) -> None:
    image = bytes(imagecodecs.jpeg8_encode(np.zeros((8, 8, 3), np.uint16), bitspersample=12))
    monkeypatch.setitem(sys.modules, "imagecodecs", None)  # after it has loaded its codec, which it does when called
    with pytest.raises(BadImage, match=r"12 bits: make install EXTRAS=formats"):
        trainable_jpeg(image)


def test_sixteen_bit_grey_is_scaled_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    out = io.BytesIO()
    Image.fromarray(ramp).save(out, "PNG")
    with Image.open(io.BytesIO(trainable_jpeg(out.getvalue())[0])) as stored:
        assert np.abs(np.asarray(stored, np.float32) - ramp / 257).max() < 4


BROKEN = {
    "empty file": (b"", "empty file"),
    "text": (b"this is no image at all", "a kind that Pillow cannot read"),
    "half a JPEG": (jpeg(1)[: len(jpeg(1)) // 2], "truncated"),
    "a JPEG without its last byte": (jpeg(1)[:-1], "truncated"),
    "only a start marker": (b"\xff\xd8", "truncated"),
    "start and end": (b"\xff\xd8\xff\xd9" + bytes(9), "ends before its first scan"),
    "cut in its EXIF thumbnail": (PLAIN["a thumbnail in its EXIF"][:700], "truncated"),
    "half a PNG": (jpeg(1, (99, 99), format="PNG")[:5000], "not readable"),
    "no pixels": (_frame(jpeg(1), lambda m, b, h, w, c: (m, (b, h, 0, c))), "0×16 pixels"),
    "too many pixels": (
        _frame(jpeg(1), lambda m, b, h, w, c: (m, (b, 65500, 65500, c))),
        "over the limit of 64 Mpx",
    ),
    "seven bits": (_frame(jpeg(1), lambda m, b, h, w, c: (m, (7, h, w, c))), "a JPEG of 7 bits"),
    "lossless that is none": (_frame(jpeg(1), lambda m, b, h, w, c: (0xC3, (b, h, w, c))), "not readable"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "a kind that Pillow cannot read"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_images_have_a_reason(name: str) -> None:
    image, reason = BROKEN[name]
    with pytest.raises(BadImage) as bad:
        trainable_jpeg(image)
    assert reason in str(bad.value)


def test_a_png_of_absurd_size_is_refused_before_it_is_decoded() -> None:
    side = 9000
    assert side * side > PIXELS_MAX
    out = io.BytesIO()
    Image.new("1", (side, side)).save(out, "PNG")
    with pytest.raises(BadImage, match="9000×9000 pixels is over the limit"):
        trainable_jpeg(out.getvalue())


def test_a_damaged_scan_is_found_by_decoding_it() -> None:
    image = undecodable_jpeg()
    assert trainable_jpeg(image)[0] == image
    with pytest.raises(BadImage, match="does not decode"):
        trainable_jpeg(image, decode_pixels)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(PLAIN)))
def test_any_change_to_a_jpeg_gives_an_image_or_a_reason(data: st.DataObject, name: str) -> None:
    image = bytearray(PLAIN[name])
    for _ in range(data.draw(st.integers(1, 5))):
        image[data.draw(st.integers(0, min(len(image) - 1, 700)))] = data.draw(st.integers(0, 255))
    del image[data.draw(st.integers(0, len(image))) :]
    try:
        stored, width, height, _ = trainable_jpeg(bytes(image))
    except BadImage:
        return
    assert 0 < width * height <= PIXELS_MAX
    assert jpeg_header(stored).trainable
