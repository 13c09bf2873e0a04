"""The byte cache holds what it says, and every index that is used belongs to its file."""

import hashlib
import io
import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from podium.data import decode
from podium.data.dataset import seek
from podium.data.dataset.manifest import MANIFEST, read_manifest, write_manifest
from podium.data.dataset.shards import ImageSet, Row, ShardWriter, write_split
from podium.data.input.byte_store import ByteStore
from podium.data.input.cache import Cache
from podium.host.files import sha256

COUNT, SIZE = 24, (200, 150)


def photograph(seed, progressive=False, size=SIZE):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8))
    out = io.BytesIO()
    small.resize(size, Image.Resampling.BICUBIC).save(out, "JPEG", quality=90, progressive=progressive)
    return out.getvalue()


FILES = [photograph(seed, progressive=seed == 5) for seed in range(COUNT)]


@pytest.fixture
def directory(tmp_path):
    rows = ((file, 0, f"{i}.jpg") for i, file in enumerate(FILES))
    write_manifest(tmp_path, ["a"], {"train": write_split(tmp_path, "train", rows, count=COUNT)}, plan="")
    return tmp_path


@pytest.fixture
def directory_of_0_1(tmp_path):
    """As Podium 0.1 wrote it: five columns, format 1, and a content hash over the hashes of the files."""
    columns = {
        "image": pa.array(FILES, pa.large_binary()),
        "label": pa.array([0] * COUNT, pa.int32()),
        "width": pa.array([SIZE[0]] * COUNT, pa.int32()),
        "height": pa.array([SIZE[1]] * COUNT, pa.int32()),
        "name": pa.array([f"{i}.jpg" for i in range(COUNT)]),
    }
    path = tmp_path / "train-00000-of-00001.arrow"
    table = pa.table(columns)
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    shard = {"file": path.name, "images": COUNT, "bytes": path.stat().st_size, "sha256": sha256(path)}
    text = json.dumps(["podium-shards-1", ["a"], {"train": [shard["sha256"]]}], sort_keys=True)
    manifest = {
        "format": "podium-shards-1",
        "content_hash": hashlib.sha256(text.encode()).hexdigest(),
        "splits": {"train": {"images": COUNT, "shards": [shard]}},
        "classes": ["a"],
        "plan": "old",
        "created_by": {"podium": "0.1.0"},
    }
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    return tmp_path


SAMPLES = np.random.default_rng(1).permutation(COUNT)
BOXES = np.array([[40, 30, 90, 80]] * COUNT, np.int32)
FLIPS = np.arange(COUNT) % 2


def decoded(cache, samples=SAMPLES):
    out = np.empty((len(samples), 32, 32, 3), np.uint8)
    assert not cache.decode(samples, BOXES[: len(samples)], FLIPS[: len(samples)], out=out).any()
    return out


@pytest.fixture
def expected():
    out = np.empty((COUNT, 32, 32, 3), np.uint8)
    assert not decode.decode_batch([FILES[s] for s in SAMPLES], BOXES, FLIPS, out=out, threads=1).any()
    return out


def test_indexes_are_stored_beside_baseline_images_and_none_beside_others(directory):
    images = ImageSet.open(directory, "train")
    for i, file in enumerate(FILES):
        assert images.indexes[i].tobytes() == (decode.build_index(file) or b"")
    assert [i for i in range(COUNT) if not images.indexes[i].size] == [5]  # progressive
    stored = sum(images.indexes[i].size for i in range(COUNT))
    assert stored <= 0.04 * sum(map(len, FILES))


def test_small_images_get_no_index():
    assert seek.build_index(photograph(1, size=(64, 64)), 64, 64) is None
    assert seek.build_index(photograph(1, size=(128, 128)), 128, 128) is not None


@pytest.mark.parametrize("wanted", ["libjpeg", "pillow"])
def test_another_decoder_builds_no_index(monkeypatch, wanted):
    monkeypatch.setenv("PODIUM_DECODER", wanted)
    decode._chosen.cache_clear()
    try:
        assert seek.build_index(FILES[0], *SIZE) is None
    finally:
        monkeypatch.undo()
        decode._chosen.cache_clear()


@pytest.mark.parametrize("level", ["none", "bytes", "pixels"])
@pytest.mark.parametrize("seeking", [True, False])
def test_every_level_gives_the_decoders_bits_with_and_without_an_index(directory, expected, level, seeking):
    cache = Cache(ImageSet.open(directory, "train"), level, threads=2, seek=seeking)
    for _ in range(2):  # the second time from the cache
        np.testing.assert_array_equal(decoded(cache), expected)


def overwrite(directory):
    """Destroys what the shard holds, in place: the mapping sees it, copies do not."""
    path = directory / "train-00000-of-00001.arrow"
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(path.stat().st_size - 8192))


def test_cached_bytes_are_copies(directory, expected):
    images = ImageSet.open(directory, "train")
    levels = {level: Cache(images, level, threads=1) for level in ("bytes", "none")}
    levels["bytes"].read_ahead(SAMPLES)
    overwrite(directory)
    np.testing.assert_array_equal(decoded(levels["bytes"]), expected)
    out = np.empty((COUNT, 32, 32, 3), np.uint8)
    assert levels["none"].decode(SAMPLES, BOXES, FLIPS, out=out).any()  # or the test shows nothing


def test_a_directory_of_0_1_opens_and_gets_its_indexes_in_the_byte_cache(directory_of_0_1, expected):
    manifest = read_manifest(directory_of_0_1)
    images = ImageSet.open(directory_of_0_1, "train")
    assert manifest.format == "podium-shards-1"
    assert not any(images.indexes[i].size for i in range(COUNT))
    cache = Cache(images, "bytes", threads=2)
    np.testing.assert_array_equal(decoded(cache), expected)
    assert cache._indexes.keys() == set(range(COUNT)) - {5}
    for level in ("none", "pixels"):
        np.testing.assert_array_equal(decoded(Cache(images, level, threads=1)), expected)


@pytest.mark.parametrize("level", ["none", "bytes"])
def test_an_index_of_another_file_is_noticed_and_built_again(tmp_path, expected, level):
    indexes = [decode.build_index(file) or b"" for file in FILES]
    wrong = {0: indexes[1], 1: b"nonsense", 2: indexes[2][:-1] + bytes([indexes[2][-1] ^ 1])}
    with ShardWriter.open(tmp_path / "train-00000-of-00001.arrow") as writer:
        for i, file in enumerate(FILES):
            writer.add(Row(file, 0, *SIZE, f"{i}.jpg", wrong.get(i, indexes[i]) or None))
    write_manifest(tmp_path, ["a"], {"train": [writer.shard]}, plan="")
    cache = Cache(ImageSet.open(tmp_path, "train"), level, threads=2)
    np.testing.assert_array_equal(decoded(cache), expected)
    mended = cache._indexes.buffers(np.array([0, 1, 2]), None).views()
    assert [view.tobytes() for view in mended] == indexes[:3]
    np.testing.assert_array_equal(decoded(cache), expected)


def test_the_content_hash_does_not_depend_on_the_index(tmp_path):
    hashes = set()
    for name, index in (("a", None), ("b", b"an index of a later version")):
        (tmp_path / name).mkdir()
        with ShardWriter.open(tmp_path / name / "train-00000-of-00001.arrow") as writer:
            writer.add(Row(FILES[0], 0, *SIZE, "0.jpg", index))
        hashes.add(write_manifest(tmp_path / name, ["a"], {"train": [writer.shard]}, plan="").content_hash)
    assert len(hashes) == 1


def test_a_store_keeps_strings_of_every_size_apart(monkeypatch):
    monkeypatch.setattr("podium.data.input.byte_store._BLOCK_BYTES", 1000)
    store, rng = ByteStore(60), np.random.default_rng(0)
    strings = {n: rng.integers(0, 256, size, np.uint8) for n, size in enumerate(rng.integers(1, 3000, 50))}
    for number, string in strings.items():
        store.put(number, string)
    assert store.keys() == set(strings)
    assert store.has(np.arange(60)).tolist() == [n < 50 for n in range(60)]
    for number, view in enumerate(store.buffers(np.arange(50), None).views()):
        np.testing.assert_array_equal(view, strings[number])
