"""The decoder against Pillow, against a NumPy twin of its arithmetic, and against itself (file and pixel
cache must give the same bits), over generated files of every kind and the real ImageNet sample where it is at
hand.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from podium.data import decode
from podium.data.decode import Buffers, Status, native
from podium.data.decode.status import Crops
from podium.errors import UserError

Pixels = NDArray[np.uint8]
BACKENDS = ["pillow"] if native.missing else ["native", "libjpeg", "pillow"]


@pytest.fixture(params=BACKENDS)
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(decode, "_chosen", lambda: (request.param, "the test wants it"))
    return decode


def scene(width: int, height: int, seed: int = 0) -> Pixels:
    """Smooth colours, sharp edges and some noise: what upsampling, filters and rounding all react to."""
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([np.sin(x / 9 + y / 23), np.cos(x / 31 - y / 7), np.sin((x + y) / 13)], -1) * 90 + 128
    waves[(x // 17 + y // 11) % 3 == 0] += (60, -50, 40)
    noise = np.random.default_rng(seed).normal(0, 6, waves.shape)
    return np.clip(waves + noise, 0, 255).astype(np.uint8)


def jpeg(pixels: Pixels, mode: str = "RGB", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, "JPEG", **{"quality": 90, **options})
    return buffer.getvalue()


SCENE = scene(149, 117)
FILES = {
    "444": jpeg(SCENE, subsampling=0),
    "422": jpeg(SCENE, subsampling=1),
    "420": jpeg(SCENE, subsampling=2),
    "grey": jpeg(SCENE, "L"),
    "cmyk": jpeg(SCENE, "CMYK"),
    "progressive-444": jpeg(SCENE, subsampling=0, progressive=True),
    "progressive-420": jpeg(SCENE, subsampling=2, progressive=True),
    "restart-444": jpeg(SCENE, subsampling=0, restart_marker_blocks=7),
    "restart-420": jpeg(SCENE, subsampling=2, restart_marker_rows=1),
    "optimized": jpeg(SCENE, optimize=True, quality=98),
    "rgb": jpeg(SCENE, keep_rgb=True),
    "1x1": jpeg(scene(1, 1)),
    "1x40": jpeg(scene(1, 40), subsampling=2),
    "3x2": jpeg(scene(3, 2), subsampling=2),
    "17x16-420": jpeg(scene(17, 16), subsampling=2),
}


def real_images() -> Iterator[bytes]:
    beside = Path(__file__).parents[4] / "shared" / "data"
    sample = Path(os.environ.get("PODIUM_TEST_DATA", beside)) / "imagenet-sample.tar"
    if not sample.exists():
        return
    with tarfile.open(sample) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".JPEG"):
                file = archive.extractfile(member)
                assert file is not None
                yield file.read()


def pillow_reference(image: bytes, box: tuple[int, int, int, int], flip: bool, size: int) -> Pixels:
    x, y, w, h = box
    crop = Image.open(io.BytesIO(image)).convert("RGB").crop((x, y, x + w, y + h))
    square = np.asarray(crop.resize((size, size), Image.Resampling.BILINEAR))
    return square[:, ::-1] if flip else square


def numpy_resize(pixels: Pixels, size: int) -> Pixels:
    """The slow twin of native/decode/resize.cpp, to the bit (below 512 taps, where nothing saturates)."""

    def weights(in_size: int) -> NDArray[np.int64]:
        scale = in_size / size
        support = max(scale, 1.0)
        center = (np.arange(size) + 0.5) * scale
        begin = np.maximum((center - support + 0.5).astype(int), 0)[:, None]
        end = np.minimum((center + support + 0.5).astype(int), in_size)[:, None]
        at = np.arange(in_size)[None]
        exact = np.maximum(1 - np.abs((at + 0.5 - center[:, None]) / support), 0)
        exact *= (at >= begin) & (at < end)
        running = np.cumsum(exact, 1)
        upto = (running / running[:, -1:] * 32768 + 0.5).astype(np.int64)
        return np.minimum(np.diff(upto, axis=1, prepend=0), 32767)

    def rounded_sum(x: NDArray[np.int64], w: NDArray[np.int64]) -> NDArray[np.int64]:
        return ((x[None] * w[:, :, None] + (1 << 14)) >> 15).sum(1)  # [in, rest], [out, in] -> [out, rest]

    height, width, _ = pixels.shape
    samples = (pixels.astype(np.int64) - 128) * 256
    rows = rounded_sum(samples.reshape(height, -1), weights(height)).reshape(size, width, 3)
    turned = rows.swapaxes(0, 1).reshape(width, -1)
    columns = rounded_sum(turned, weights(width)).reshape(size, size, 3).swapaxes(0, 1)
    return (((columns + 128) >> 8) + 128).astype(np.uint8)


def one(image: bytes, box: tuple[int, int, int, int], flip: bool, size: int) -> Pixels:
    out = np.full((1, size, size, 3), 77, np.uint8)
    statuses = decode.decode_batch([image], np.array([box]), np.array([flip]), out, 1)
    assert statuses.tolist() == [Status.OK]
    return out[0]


def one_from_pixels(pixels: Pixels, box: tuple[int, int, int, int], flip: bool, size: int) -> Pixels:
    out = np.full((1, size, size, 3), 77, np.uint8)
    assert decode.resize_batch([pixels], np.array([box]), np.array([flip]), out, 1).tolist() == [Status.OK]
    return out[0]


def difference(a: Pixels, b: Pixels) -> NDArray[np.int16]:
    return np.abs(a.astype(np.int16) - b)


def crop_boxes(sizes: list[tuple[int, int]], seed: int) -> list[tuple[int, int, int, int]]:
    rng = np.random.default_rng(seed)
    boxes = []
    for width, height in sizes:
        w, h = int(rng.integers(1, width + 1)), int(rng.integers(1, height + 1))
        x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
        boxes.append((x, y, w, h))
    return boxes


# ---- the pixels


@pytest.mark.parametrize("name", FILES)
def test_whole_decode_is_pillows(name: str, either: ModuleType) -> None:
    pixels = either.decode_pixels(FILES[name])
    reference = np.asarray(Image.open(io.BytesIO(FILES[name])).convert("RGB"))
    assert pixels.shape == reference.shape
    assert either.jpeg_size(FILES[name]) == (pixels.shape[1], pixels.shape[0])
    # Pillow ships its own libjpeg-turbo; the same ISLOW and fancy upsampling give the same bits.
    np.testing.assert_array_equal(pixels, reference)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("size", [5, 32, 160])
def test_crops_are_pillows_to_a_level(name: str, size: int, either: ModuleType) -> None:
    width, height = either.jpeg_size(FILES[name])
    for seed, box in enumerate([(0, 0, width, height), *crop_boxes([(width, height)] * 4, size)]):
        flip = seed % 2 == 1
        off = difference(one(FILES[name], box, flip, size), pillow_reference(FILES[name], box, flip, size))
        assert off.max() <= 1, (box, flip)
        assert off.mean() < 0.3, (box, flip)


def test_real_images_are_pillows_to_a_level() -> None:
    images = list(real_images()) or list(FILES.values())
    boxes = crop_boxes([decode.jpeg_size(image) for image in images], seed=3)
    flips = np.arange(len(images)) % 2 == 1
    out = np.empty((len(images), 224, 224, 3), np.uint8)
    assert not decode.decode_batch(images, np.array(boxes), flips, out, 2).any()
    worst = mean = 0.0
    for image, box, flip, square in zip(images, boxes, flips, out, strict=True):
        off = difference(square, pillow_reference(image, box, bool(flip), 224))
        worst, mean = max(worst, float(off.max())), max(mean, float(off.mean()))
    # Pillow rounds to 8 bits between its passes and the native code does not: seen at most 1 level, mean 0.2.
    assert worst <= 1
    assert mean < 0.4


def test_real_images_give_the_same_bits_from_file_and_from_pixels(either: ModuleType) -> None:
    images = list(real_images())[::4] or list(FILES.values())
    boxes = np.array(crop_boxes([either.jpeg_size(image) for image in images], seed=4))
    flips = np.arange(len(images)) % 2 == 0
    from_files, from_pixels = np.empty((2, len(images), 64, 64, 3), np.uint8)
    assert not either.decode_batch(images, boxes, flips, from_files, 2).any()
    pixels = [either.decode_pixels(image) for image in images]
    assert not either.resize_batch(pixels, boxes, flips, from_pixels, 2).any()
    np.testing.assert_array_equal(from_files, from_pixels)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_box_gives_the_same_bits_from_file_and_from_pixels(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FILES)))
    width, height = decode.jpeg_size(FILES[name])
    x = data.draw(st.integers(-2 * width - 3, 2 * width + 3))
    y = data.draw(st.integers(-2 * height - 3, 2 * height + 3))
    box = x, y, data.draw(st.integers(1, 2 * width)), data.draw(st.integers(1, 2 * height))
    flip, size = data.draw(st.booleans()), data.draw(st.sampled_from([1, 2, 7, 32]))
    pixels = decode.decode_pixels(FILES[name])
    np.testing.assert_array_equal(one(FILES[name], box, flip, size), one_from_pixels(pixels, box, flip, size))


@pytest.mark.parametrize("name", [n for n in FILES if n[0] != "1" and n != "3x2"])
def test_every_crop_position_decodes_as_the_whole(name: str) -> None:
    """Copied boxes show the decoded pixels themselves: what is skipped must not change its neighbours."""
    pixels = decode.decode_pixels(FILES[name])
    size = 20
    corners = [(x, y) for y in range(0, 97, 3) for x in range(y % 7, 129, 7)] + [(129, 97), (0, 97), (129, 0)]
    out = np.empty((len(corners), size, size, 3), np.uint8)
    boxes = np.array([(x, y, size, size) for x, y in corners])
    assert not decode.decode_batch([FILES[name]] * len(corners), boxes, np.zeros(len(corners)), out, 2).any()
    for (x, y), square in zip(corners, out, strict=True):
        np.testing.assert_array_equal(square, pixels[y : y + size, x : x + size], err_msg=f"at {x}, {y}")


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 70), st.booleans(), st.integers(0, 99))
def test_resize_is_its_numpy_twin(width: int, height: int, size: int, flip: bool, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    if (width, height) == (size, size):
        expected = pixels
    elif decode.backend() != "pillow":
        expected = numpy_resize(pixels, size)
    else:
        expected = np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR))
    got = one_from_pixels(pixels, (0, 0, width, height), flip, size)
    np.testing.assert_array_equal(got, expected[:, ::-1] if flip else expected)


@pytest.mark.parametrize("level", [0, 1, 127, 128, 254, 255])
@pytest.mark.parametrize(("width", "height", "size"), [(500, 375, 224), (100, 90, 224), (2500, 1300, 42), (41, 3, 40)])
def test_flat_images_stay_flat(level: int, width: int, height: int, size: int) -> None:
    flat = np.full((height, width, 3), level, np.uint8)
    assert np.unique(one_from_pixels(flat, (0, 0, width, height), False, size)).tolist() == [level]


def test_long_filters_stay_close_to_pillow() -> None:
    pixels = scene(1501, 850)
    expected = np.asarray(Image.fromarray(pixels).resize((4, 4), Image.Resampling.BILINEAR))
    assert difference(one_from_pixels(pixels, (0, 0, 1501, 850), False, 4), expected).max() <= 1


# ---- boxes and batches


@settings(max_examples=100, deadline=None)
@given(st.integers(-60, 60), st.integers(-60, 60), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_beyond_the_image_is_numpys_reflection(x: int, y: int, width: int, height: int, flip: bool) -> None:
    pixels = scene(width, height, seed=width * 10 + height)
    padded = np.pad(pixels, ((100, 100), (100, 100), (0, 0)), mode="reflect")
    expected = padded[y + 100 : y + 132, x + 100 : x + 132]
    for backend in BACKENDS:
        out = np.empty((1, 32, 32, 3), np.uint8)
        crops = Crops(np.array([(x, y, 32, 32)], np.int32), np.array([flip], np.uint8), out, 1)
        assert decode._DECODERS[backend].resize_batch([pixels], crops).tolist() == [Status.OK]
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
        statuses = either.decode_batch(images, boxes, flips, out, threads)
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
    assert either.decode_batch([], np.empty((0, 4)), np.empty(0), out, 2).shape == (0,)


# ---- what goes wrong


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
    statuses = either.decode_batch([GOOD, image, GOOD], boxes, np.zeros(3), out, 2)
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
    statuses = either.decode_batch([FILES["444"][:-300]], np.array([(0, 0, 8, 8)]), np.zeros(1), out, 1)
    assert statuses.tolist() == [Status.TRUNCATED]


@pytest.mark.parametrize("name", ["444", "progressive-420"])
def test_a_scan_that_ends_too_early_is_corrupt(name: str) -> None:
    image = FILES[name][: len(FILES[name]) // 2] + b"\xff\xd9"
    with pytest.raises(decode.DecodeError) as raised:
        decode.decode_pixels(image)
    assert raised.value.status in (Status.CORRUPT, Status.TRUNCATED)


if not native.missing:

    def test_a_progressive_file_of_endless_scans_is_refused() -> None:
        image = FILES["progressive-444"]
        begin = image.find(b"\xff\xda")
        end = image.find(b"\xff\xc4", begin)  # the tables of the second scan
        for scans, status in ((50, Status.OK), (150, Status.TOO_LARGE)):
            endless = image[:begin] + image[begin:end] * scans + image[end:]
            out = np.empty((1, 8, 8, 3), np.uint8)
            crops = Crops(np.array([(0, 0, 9, 9)], np.int32), np.zeros(1, np.uint8), out, 1)
            assert native.own.decode_batch(Buffers.of([endless]), crops, None, None).tolist() == [status]


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
def test_absurd_boxes_have_a_status(box: tuple[int, int, int, int], either: ModuleType) -> None:
    out = np.full((1, 8, 8, 3), 99, np.uint8)
    assert either.decode_batch([GOOD], np.array([box]), np.zeros(1), out, 1).tolist() == [Status.BAD_BOX]
    assert not out.any()
    out[:] = 99
    assert either.resize_batch([SCENE], np.array([box]), np.zeros(1), out, 1).tolist() == [Status.BAD_BOX]
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
        decode.decode_batch([GOOD], boxes, flips, out, threads)
    with pytest.raises(ValueError):
        decode.resize_batch([SCENE], boxes, flips, out, threads)


def test_pixels_that_are_not_rgb_rows_are_refused() -> None:
    out = np.empty((1, 8, 8, 3), np.uint8)
    for image in (SCENE[:, ::2], SCENE[..., 0], SCENE.astype(np.float32)):
        with pytest.raises(ValueError, match="image 0"):
            decode.resize_batch([image], np.array([(0, 0, 4, 4)]), np.zeros(1), out, 1)


# ---- which decoder


def test_the_native_library_is_there_where_it_can_be_built() -> None:
    if shutil.which("cmake") and shutil.which("c++") and Path("/usr/include/jpeglib.h").exists():
        assert not native.missing


def test_statuses_are_those_of_the_header() -> None:
    header = (Path(__file__).parents[3] / "native" / "decode" / "podium_native.h").read_text()
    for status in Status:
        assert f"PODIUM_{status.name} = {status.value}," in header
        if not native.missing:
            assert native.status_message(status) == decode.status_message(status)


def test_the_choice_of_decoder_is_said() -> None:
    assert decode._choose("", "no compiler")[0] == "pillow"
    assert "no compiler" in decode._choose("", "no compiler")[1]
    assert decode._choose("", "")[0] == "native"
    assert decode._choose("pillow", "") == ("pillow", "Pillow decodes, because PODIUM_DECODER=pillow")
    assert decode._choose("libjpeg", "") == ("libjpeg", "libjpeg-turbo decodes, because PODIUM_DECODER=libjpeg")
    for wanted in ("native", "libjpeg"):
        with pytest.raises(UserError, match="no compiler"):
            decode._choose(wanted, "no compiler")
    with pytest.raises(UserError, match="PODIUM_DECODER='opencv'"):
        decode._choose("opencv", "")


@pytest.mark.slow
def test_a_mistaken_choice_is_one_line_of_the_command_that_decodes(tmp_path: Path) -> None:
    (tmp_path / "in" / "cat").mkdir(parents=True)
    (tmp_path / "in" / "cat" / "1.jpg").write_bytes(FILES["444"])

    def podium(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "podium", *arguments]
        environment = {**os.environ, "PODIUM_DECODER": "nativ"}
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert podium("--help").returncode == 0
    done = podium("prepare", "in", "out", "--check", "decode")
    assert done.returncode == 2
    known = "use native, libjpeg or pillow, or leave it unset"
    assert done.stderr == f"podium: PODIUM_DECODER='nativ' is not known; {known}\n"
