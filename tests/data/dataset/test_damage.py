"""A changed byte anywhere in a prepared directory is noticed: by `verify`, and by whoever opens it and reads images."""

import hashlib
import io
import json
import shutil

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from tests.support.flips import Flip, flipped, flips, harmless, unnoticed

from podium.data import decode
from podium.data.dataset.manifest import MANIFEST, read_manifest, write_manifest
from podium.data.dataset.shards import ImageSet, write_split
from podium.data.dataset.verify import REPORT, changes, verify
from podium.data.input.cache import Cache
from podium.errors import UserError
from podium.host.sealed import unseal, write_sealed

COUNT, SIZE = 6, 32
SHARD = "train-00000-of-00001.arrow"


def photograph(seed):
    """Large enough for a seek index."""
    small = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8))
    out = io.BytesIO()
    small.resize((200, 160), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
    return out.getvalue()


FILES = [photograph(seed) for seed in range(COUNT)]
EVERY = np.arange(COUNT)
BOXES = np.array([[40, 30, 90, 80]] * COUNT, np.int32)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared")
    rows = ((file, 0, f"photo-{i}.jpg") for i, file in enumerate(FILES))
    write_manifest(out, ["a"], {"train": write_split(out, "train", rows, count=COUNT)}, plan="")
    return out


def decoded(directory, level):
    """(statuses, pixels) of every image."""
    cache, out = Cache(ImageSet.open(directory, "train"), level, threads=1), np.zeros((COUNT, SIZE, SIZE, 3), np.uint8)
    statuses = cache.decode(EVERY, BOXES, np.zeros(COUNT), out=out)
    cache.close()
    return statuses, out


def test_verify_names_every_changed_file(directory):
    assert changes(directory) == []
    silent = unnoticed(directory, 300, seed=1, changes=changes)
    assert [flip for flip in silent if not harmless(flip)] == []


@pytest.mark.parametrize("level", ["none", "bytes", "pixels"])
def test_no_reader_gets_wrong_pixels_without_a_word(directory, level):
    right = decoded(directory, level)[1]
    shard = directory / SHARD
    found = {"opening": 0, "reading": 0}
    for flip in flips(directory, 60, seed=2):
        if flip.file != shard:
            continue
        with flipped(flip):
            try:
                statuses, pixels = decoded(directory, level)
            except UserError as error:
                found["opening"] += SHARD in str(error)
                continue
            good = statuses == decode.Status.OK
            np.testing.assert_array_equal(pixels[good], right[good])
            assert (statuses == decode.Status.CHANGED).sum() == 1
            found["reading"] += 1
    assert found["opening"] + found["reading"] == 30
    assert found["reading"] > 10


def test_a_report_whose_hash_is_no_longer_called_so_is_damaged(directory):
    write_sealed(directory / REPORT, {"left_out": []})
    try:
        assert changes(directory) == []
        with flipped(Flip(directory / REPORT, (directory / REPORT).read_bytes().index(b"sha256"), 1)):
            assert "report.json is damaged (it has no hash of itself)" in changes(directory)[0]
    finally:
        (directory / REPORT).unlink()


def test_an_image_that_has_changed_is_named(directory):
    (first, _), *_ = read_manifest(directory).splits["train"][0].data
    with flipped(Flip(directory / SHARD, first + len(FILES[0]) + 700, 1)):
        with pytest.raises(UserError, match=r"arrow is damaged \(the image photo-1\.jpg is not what was stored\)"):
            verify(directory)
        assert [i for i in range(COUNT) if ImageSet.open(directory, "train").damaged(i)] == [1]


def test_labels_are_compared_before_arrow_reads_them(directory):
    """A label that is still one of the classes would train wrongly, in silence."""
    batch = pa.ipc.open_file(str(directory / SHARD)).get_batch(0)
    place = (directory / SHARD).read_bytes().index(batch.column(2).buffers()[1].to_pybytes())  # widths
    with flipped(Flip(directory / SHARD, place, 2)), pytest.raises(UserError, match="do not match their checksum"):
        ImageSet.open(directory, "train")


@pytest.mark.parametrize("version", [1, 2])
def test_earlier_formats_open_and_are_verified_by_their_hashes(directory, tmp_path, version):
    """As they were written: without checksums, and a manifest without a hash of itself."""
    old = shutil.copytree(directory, tmp_path / "old")
    table = pa.ipc.open_file(str(old / SHARD)).read_all().select(range(4 + version))
    with pa.ipc.new_file(str(old / SHARD), table.schema) as writer:
        writer.write_table(table)
    as_it_is = read_manifest(directory)
    text = unseal((old / MANIFEST).read_bytes())
    (shard,) = text["splits"]["train"]["shards"]
    del shard["data"], shard["frame_crc32"]
    shard |= {"bytes": (old / SHARD).stat().st_size, "sha256": sha256_of(old / SHARD)}
    if version == 1:
        del shard["content_sha256"]
    text["format"] = f"podium-shards-{version}"
    (old / MANIFEST).write_text(json.dumps(text))
    if version == 1:
        text["content_hash"] = content_hash_of_format_1(shard)
        (old / MANIFEST).write_text(json.dumps(text))
    assert changes(old) == []
    np.testing.assert_array_equal(decoded(old, "bytes")[1], decoded(directory, "bytes")[1])
    assert (read_manifest(old).content_hash == as_it_is.content_hash) == (version == 2)
    with flipped(Flip(old / SHARD, 5000, 1)):
        assert len(changes(old)) == 1


def sha256_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def content_hash_of_format_1(shard):
    text = json.dumps(["podium-shards-1", ["a"], {"train": [shard["sha256"]]}], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
