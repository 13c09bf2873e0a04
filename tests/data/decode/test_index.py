"""The seek index: it changes speed and never a pixel. One that was damaged, cut or made for other bytes is noticed,
said to be stale and not used; building one says what is wrong with a file.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.jpegs import FILES, Pixels, crop_boxes, jpeg, scene

from podium.data import decode
from podium.data.decode import Buffers, Status, native

IMAGE = FILES["444"]
BOX = (41, 37, 60, 50)


def decoded(image: bytes, index: bytes | None) -> tuple[Pixels, bool]:
    out = np.full((1, 32, 32, 3), 77, np.uint8)
    stale = np.zeros(1, np.bool_)
    statuses = decode.decode_batch(
        [image], np.array([BOX]), np.zeros(1), out=out, threads=1, indexes=[index], stale=stale
    )
    assert statuses.tolist() == [Status.OK]
    return out[0], bool(stale[0])


def test_pillow_has_no_index_but_checks_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = decoded(IMAGE, None)[0]
    monkeypatch.setattr(decode, "_chosen", lambda: ("pillow", "the test wants it"))
    assert decode.build_index(IMAGE) is None
    with pytest.raises(decode.DecodeError):
        decode.build_index(IMAGE[:-200])
    out, stale = decoded(IMAGE, b"whatever")
    assert not stale
    assert np.abs(out.astype(int) - expected).max() <= 1


def test_indexes_that_do_not_fit_the_batch_are_refused() -> None:
    out = np.empty((1, 8, 8, 3), np.uint8)
    work: dict[str, Any] = {"boxes": np.array([BOX]), "flips": np.zeros(1), "out": out, "threads": 1}
    with pytest.raises(ValueError, match="2 indexes for 1 images"):
        decode.decode_batch([IMAGE], **work, indexes=[None, None])
    unfit: list[Any] = [np.zeros(2, np.bool_), np.zeros(1, np.uint8)]
    for stale in unfit:
        with pytest.raises(ValueError, match="stale"):
            decode.decode_batch([IMAGE], **work, stale=stale)
    with pytest.raises(ValueError, match="addresses"):
        Buffers(np.zeros(1, np.uintp), np.zeros(2, np.uintp))
    with pytest.raises(ValueError, match="uintp"):
        Buffers(np.zeros(1, np.int32), np.zeros(1, np.uintp))


def test_files_are_taken_from_addresses(either: object) -> None:
    """A batch whose files are slices of one buffer needs no object for each."""
    images = [FILES[name] for name in ("444", "420", "grey", "progressive-444")]
    joined = np.frombuffer(b"".join(images), np.uint8)
    sizes = np.array([len(image) for image in images], np.uintp)
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.uintp)
    at = Buffers(np.uintp(joined.__array_interface__["data"][0]) + begins, sizes)
    boxes = np.array(crop_boxes([(149, 117)] * 4, seed=2))
    indexes = [decode.build_index(image) for image in images]
    expected, out = np.empty((2, 4, 32, 32, 3), np.uint8)
    assert not decode.decode_batch(images, boxes, np.zeros(4), out=expected, threads=1).any()
    for given_indexes in (indexes, Buffers.of(indexes)):
        assert not decode.decode_batch(at, boxes, np.zeros(4), out=out, threads=2, indexes=given_indexes).any()
        np.testing.assert_array_equal(out, expected)


def test_a_broken_file_has_no_index(either: object) -> None:
    for broken in (b"", b"no JPEG at all", IMAGE[:-200], FILES["progressive-444"][:-200]):
        with pytest.raises(decode.DecodeError):
            decode.build_index(broken)


if not native.missing:

    def test_a_code_that_is_missing_anywhere_is_seen() -> None:
        """A crop does not read what lies below it; building the index does."""
        cut = FILES["420"][:-600] + b"\xff\xd9"
        out = np.empty((1, 8, 8, 3), np.uint8)
        assert decode.decode_batch([cut], np.array([(0, 0, 8, 8)]), np.zeros(1), out=out, threads=1).tolist() == [
            Status.OK
        ]
        with pytest.raises(decode.DecodeError) as raised:
            decode.build_index(cut)
        assert raised.value.status == Status.CORRUPT

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def test_a_damaged_index_is_noticed_and_not_used(data: st.DataObject) -> None:
        index = decode.build_index(IMAGE)
        assert index is not None
        damaged = bytearray(index)
        at = data.draw(st.integers(0, len(index) - 1))
        damaged[at] ^= data.draw(st.integers(1, 255))
        out, stale = decoded(IMAGE, bytes(damaged))
        assert stale
        np.testing.assert_array_equal(out, decoded(IMAGE, None)[0])

    def test_an_index_of_other_bytes_is_noticed_and_not_used() -> None:
        index = decode.build_index(IMAGE)
        assert index is not None
        expected = decoded(IMAGE, None)[0]
        others = [
            decode.build_index(jpeg(scene(149, 117, seed=1), subsampling=0)),
            decode.build_index(FILES["420"]),
            index[:-1],
            index + b"\0",
            index[:15],
            b"P",
        ]
        for other in others:
            out, stale = decoded(IMAGE, other)
            assert stale, other
            np.testing.assert_array_equal(out, expected)
        assert decoded(IMAGE, index)[1] is False
        assert decoded(FILES["progressive-444"], index)[1] is True
        for no_index in (None, b""):
            assert decoded(IMAGE, no_index)[1] is False

    def test_a_file_changed_after_its_index_is_noticed() -> None:
        index = decode.build_index(IMAGE)
        for at in range(len(IMAGE) // 2, len(IMAGE) - 2, 211):
            changed = IMAGE[:at] + bytes([IMAGE[at] ^ 1]) + IMAGE[at + 1 :]
            out = np.empty((2, 32, 32, 3), np.uint8)
            stale = np.zeros(2, np.bool_)
            work: dict[str, Any] = {"boxes": np.array([BOX] * 2), "flips": np.zeros(2), "out": out, "threads": 1}
            statuses = decode.decode_batch([changed] * 2, **work, indexes=[index, None], stale=stale)
            assert statuses[0] == statuses[1]
            assert stale.tolist() == [True, False]
            np.testing.assert_array_equal(out[0], out[1])

    @pytest.mark.parametrize("quality", [5, 40, 75, 95, 100])
    @pytest.mark.parametrize("size", [(16, 16), (64, 64), (500, 375), (1200, 30), (30, 1200)])
    def test_an_index_is_small(quality: int, size: tuple[int, int]) -> None:
        image = jpeg(scene(*size), quality=quality, subsampling=0)
        index = decode.build_index(image)
        assert index is not None
        assert len(index) <= max(len(image) * 0.04, 16)
        if size == (500, 375) and quality >= 95:  # a place at each of 47 rows, and 7 more in it
            assert len(index) == 16 + 47 * (10 + 7 * 8)

    def test_libjpeg_alone_neither_makes_nor_reads_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(decode, "_chosen", lambda: ("libjpeg", "the test wants it"))
        assert decode.build_index(IMAGE) is None
        assert decoded(IMAGE, b"whatever")[1] is False
