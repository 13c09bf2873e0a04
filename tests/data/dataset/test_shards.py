"""Shards on disk: what goes in comes out, unfinished and damaged directories are told apart from good
ones."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.made_sources import CLASSES, jpeg

from podium.data.dataset import shards as shards_module
from podium.data.dataset.manifest import MANIFEST, WORK, read_manifest, write_manifest
from podium.data.dataset.shards import ImageSet, Row, ShardWriter, shard_count, write_split
from podium.data.dataset.verify import verify
from podium.errors import UserError


def _write(directory: Path, count: int = 7) -> list[tuple[bytes, int, str]]:
    images = [(jpeg(i, (10 + i, 20)), i % 3, f"image {i}") for i in range(count)]
    train = write_split(directory, "train", iter(images), count=count)
    validation = write_split(directory, "validation", iter(images[:2]), count=2)
    write_manifest(directory, CLASSES, {"train": train, "validation": validation}, plan="made")
    return images


def test_every_image_comes_back_bit_for_bit(tmp_path: Path) -> None:
    images = _write(tmp_path)
    opened = ImageSet.open(tmp_path, "train")
    assert len(opened) == len(images)
    assert opened.classes == CLASSES
    for index, (image, label, name) in enumerate(images):
        assert opened.image(index).tobytes() == image
        assert opened.labels[index] == label
        assert opened.name(index) == name
        assert opened.sizes[index].tolist() == [10 + index, 20]
    assert opened.labels.dtype == opened.sizes.dtype == np.int32
    assert len(ImageSet.open(tmp_path, "validation")) == 2


def test_pyarrow_alone_reads_a_shard(tmp_path: Path) -> None:
    images = _write(tmp_path)
    table = pa.ipc.open_file(str(tmp_path / "train-00000-of-00001.arrow")).read_all()
    kinds = {"image": "large_binary", "label": "int32", "width": "int32", "height": "int32", "name": "string"}
    kinds |= {"index": "binary", "crc32": "uint32"}
    assert {field.name: str(field.type) for field in table.schema} == kinds
    assert table["image"].to_pylist() == [image for image, _, _ in images]


def test_images_are_read_only_views_that_outlive_the_set(tmp_path: Path) -> None:
    images = _write(tmp_path)
    view = ImageSet.open(tmp_path, "train").image(3)
    assert not view.flags.owndata
    assert not view.flags.writeable
    assert view.tobytes() == images[3][0]


def test_opening_many_shards_holds_no_file_open(tmp_path: Path) -> None:
    _write(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    kept = [ImageSet.open(tmp_path, "train") for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(kept) == 20


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 3000), max_size=40), batch_bytes=st.integers(1, 5000))
def test_record_batches_never_show(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], batch_bytes: int
) -> None:
    """However the rows fall into record batches, index i is row i."""
    directory = tmp_path_factory.mktemp("batches")
    contents = [bytes([i]) * size for i, size in enumerate(sizes)]
    with (
        pytest.MonkeyPatch.context() as patch,
        ShardWriter.open(directory / "train-00000-of-00001.arrow") as writer,
    ):
        patch.setattr(shards_module, "_BATCH_BYTES", batch_bytes)
        for i, content in enumerate(contents):
            writer.add(Row(content, i % 3, 1, 1, str(i), bytes([i]) * (i % 4) or None))
    write_manifest(directory, CLASSES, {"train": [writer.shard]}, plan="")
    opened = ImageSet.open(directory, "train")
    assert [opened.image(i).tobytes() for i in range(len(opened))] == contents
    assert [opened.name(i) for i in range(len(opened))] == [str(i) for i in range(len(sizes))]
    assert [opened.indexes[i].tobytes() for i in range(len(opened))] == [
        bytes([i]) * (i % 4) for i in range(len(sizes))
    ]
    order = np.random.default_rng(0).permutation(len(sizes))
    assert [view.tobytes() for view in opened.images.buffers(order).views()] == [contents[i] for i in order]


def test_threads_read_the_same(tmp_path: Path) -> None:
    images, wrong = _write(tmp_path, 50), []
    opened = ImageSet.open(tmp_path, "train")

    def read(first: int) -> None:
        for i in range(200):
            index = (first + i) % len(images)
            if opened.image(index).tobytes() != images[index][0] or opened.name(index) != images[index][2]:
                wrong.append(index)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("index", [-1, 7])
def test_no_image_outside_the_set(tmp_path: Path, index: int) -> None:
    _write(tmp_path)
    with pytest.raises(IndexError):
        ImageSet.open(tmp_path, "train").image(index)


@given(images=st.integers(0, 10**8), image_bytes=st.integers(0, 10**14))
def test_shards_are_neither_too_large_nor_too_many(images: int, image_bytes: int) -> None:
    count = shard_count(images, image_bytes)
    assert image_bytes / count <= 256 * 2**20
    assert count == 1 or count <= max(8, image_bytes / (256 * 2**20) + 1)


def test_large_splits_have_several_shards(tmp_path: Path) -> None:
    image = jpeg(0)
    shards = write_split(tmp_path, "train", ((image, 0, str(i)) for i in range(300)), count=300)
    assert [shard.file for shard in shards] == [f"train-{i:05d}-of-00003.arrow" for i in range(3)]
    write_manifest(tmp_path, CLASSES, {"train": shards}, plan="")
    opened = ImageSet.open(tmp_path, "train")
    assert [opened.name(i) for i in range(300)] == [str(i) for i in range(300)]


def test_a_failing_writer_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[tuple[bytes, int, str]]:
        yield jpeg(0), 0, "a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_split(tmp_path, "train", failing(), count=2)
    assert list(tmp_path.iterdir()) == []


def test_the_content_hash_tells_contents_and_classes(tmp_path: Path) -> None:
    hashes = set()
    for name, count, classes in [("a", 3, CLASSES), ("b", 4, CLASSES), ("c", 3, ("x", "y", "z"))]:
        directory = tmp_path / name
        directory.mkdir()
        images = [(jpeg(i), i % 3, str(i)) for i in range(count)]
        shards = write_split(directory, "train", images, count=count)
        hashes.add(write_manifest(directory, classes, {"train": shards}, plan="").content_hash)
    assert len(hashes) == 3


def test_the_manifest_holds_no_path_of_this_machine(tmp_path: Path) -> None:
    _write(tmp_path)
    assert str(tmp_path) not in (tmp_path / MANIFEST).read_text()


def _remove_manifest(directory: Path) -> None:
    (directory / MANIFEST).unlink()


def _unfinished(directory: Path) -> None:
    _remove_manifest(directory)
    (directory / WORK).mkdir()


def _edit(**changes: object) -> object:
    def edit(directory: Path) -> None:
        text = json.loads((directory / MANIFEST).read_text())
        (directory / MANIFEST).write_text(json.dumps({**text, **changes}))

    return edit


def _climb(directory: Path) -> None:
    manifest = read_manifest(directory)
    outside = [type(s)(f"../{s.file}", s.images, s.bytes, s.sha256) for s in manifest.splits["train"]]
    write_manifest(directory, manifest.classes, {"train": outside}, plan="")


def _miscount(directory: Path) -> None:
    manifest = read_manifest(directory)
    wrong = [type(s)(s.file, s.images + 1, s.bytes, s.sha256) for s in manifest.splits["train"]]
    write_manifest(directory, manifest.classes, {"train": wrong}, plan="")


def _shard(change: object) -> object:
    def damage(directory: Path) -> None:
        path = directory / "train-00000-of-00001.arrow"
        path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_remove_manifest, "has no manifest.json; make a prepared directory with: podium prepare"),
        (_unfinished, "is unfinished; run the same podium prepare again"),
        (lambda d: (d / MANIFEST).write_text("{"), "manifest.json is damaged"),
        (lambda d: (d / MANIFEST).write_text("[]"), "manifest.json is damaged"),
        (lambda d: (d / MANIFEST).write_bytes(b"\xff"), "manifest.json is damaged"),
        (_edit(format="podium-shards-9", sha256=None), "has the format 'podium-shards-9'; prepare it again"),
        (_edit(classes=["a"]), "manifest.json is damaged"),
        (_edit(splits={"train": {}}), "manifest.json is damaged"),
        (_miscount, "7 images, the manifest says 8"),
        (_climb, "a shard lies outside the directory"),
        (_shard(lambda content: content[:-1]), "bytes, the manifest says"),
        (_shard(lambda content: bytes(len(content))), "arrow is damaged"),
        (lambda d: (d / "train-00000-of-00001.arrow").unlink(), "arrow is damaged"),
    ],
)
def test_what_is_not_a_good_directory_is_told_in_one_line(tmp_path: Path, damage: object, message: str) -> None:
    _write(tmp_path)
    damage(tmp_path)  # type: ignore[operator]
    with pytest.raises(UserError) as error:
        ImageSet.open(tmp_path, "train")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a directory; make a prepared directory with"):
        ImageSet.open(tmp_path / "nowhere", "train")


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    _write(tmp_path)
    with pytest.raises(UserError, match="no split 'test', only train, validation"):
        ImageSet.open(tmp_path, "test")


def test_labels_outside_the_classes(tmp_path: Path) -> None:
    shards = write_split(tmp_path, "train", [(jpeg(0), 3, "a")], count=1)
    write_manifest(tmp_path, CLASSES, {"train": shards}, plan="")
    with pytest.raises(UserError, match="labels outside its 3 classes"):
        ImageSet.open(tmp_path, "train")


def test_verify_finds_one_flipped_bit(tmp_path: Path) -> None:
    _write(tmp_path)
    verify(tmp_path)
    path = tmp_path / "train-00000-of-00001.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"train-00000-of-00001.arrow is damaged \((its hash|the image)"):
        verify(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=r"train-00000-of-00001.arrow is damaged"):
        verify(tmp_path)
