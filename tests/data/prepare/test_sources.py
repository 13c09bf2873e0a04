"""Every format, by one contract; then what is particular to each: names, splits, checksums, refusals."""

import io
import json
import os
import struct
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example as also
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboardX.record_writer import masked_crc32c as reference_masked_crc32c
from tests.support.made_sources import CLASSES, SOURCES, example, made, parquet_bytes, tar_bytes, tfrecord_bytes
from tests.support.made_sources import write_files as _write_files

from podium.data.prepare.sources import SourceFile, find, number_classes, scan_archive, scan_folder
from podium.data.prepare.sources.find import expand_braces, split_in_name
from podium.data.prepare.sources.tfrecord import parse_example
from podium.errors import UserError
from podium.host.crc32c import crc32c, masked_crc32c


def _scan(source: str, work: Path, **given_splits: str) -> tuple[str, pa.Table]:
    found = find(source, **given_splits)
    if found.folder:
        return "folder", scan_folder(found.files)
    work.mkdir(exist_ok=True)
    scans = [scan_archive(file, work, f"{i:05d}") for i, file in enumerate(found.files)]
    return scans[0].kind, pa.concat_tables(scan.rows for scan in scans)


def _refusals(table: pa.Table) -> dict[str, str]:
    return {row["name"]: row["refused"] for row in table.to_pylist() if row["refused"]}


def _archive(tmp_path: Path, name: str, content: bytes) -> tuple[str, pa.Table]:
    (tmp_path / "in").mkdir(exist_ok=True)
    (tmp_path / "in" / name).write_bytes(content)
    return _scan(str(tmp_path / "in" / name), tmp_path / f"work on {name}")


# The contract


@pytest.mark.parametrize("protocol", ["", "memory://"])
@pytest.mark.parametrize("name", SOURCES)
def test_every_source_tells_where_each_image_lies(tmp_path: Path, name: str, protocol: str) -> None:
    files, kind, classes = SOURCES[name]
    root = f"{protocol}{tmp_path}/source"
    _write_files(root, files(tmp_path))
    found = find(root)
    kind_found, rows = _scan(root, tmp_path / "work")
    assert kind_found == kind
    one_based = kind == "tfrecord"
    known = CLASSES if kind == "parquet" else ()
    classes_found, labels = number_classes(rows, known, one_based)
    assert classes_found == classes
    contents = set()
    for row, label in zip(rows.to_pylist(), labels, strict=True):
        with fsspec.open(row["path"], "rb") as file:
            file.seek(row["offset"])
            contents.add((row["split"], int(label), file.read(row["bytes"])))
    assert contents == {(image.split, image.number, image.image) for image in made()}
    assert find(root) == found, "listing a source twice gives the same"


@pytest.mark.parametrize("name", [name for name in SOURCES if SOURCES[name][1] != "folder"])
def test_a_second_scan_is_read_from_the_work_folder(tmp_path: Path, name: str) -> None:
    root = f"memory://{tmp_path}/source"
    _write_files(root, SOURCES[name][0](tmp_path))
    found = find(root)
    (tmp_path / "work").mkdir()
    first = [scan_archive(file, tmp_path / "work", f"{i}") for i, file in enumerate(found.files)]
    fsspec.filesystem("memory").rm(f"{tmp_path}/source", recursive=True)
    for copy in (tmp_path / "work").glob("*.copy"):
        copy.write_bytes(b"")
    second = [scan_archive(file, tmp_path / "work", f"{i}") for i, file in enumerate(found.files)]
    assert first == second


# Finding files and splits


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("a", ["a"]),
        ("a-{08..11}.tar", ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]),
        ("{x,y}-{0..1}", ["x-0", "x-1", "y-0", "y-1"]),
        ("{}", ["{}"]),
        ("{a}", ["{a}"]),
    ],
)
def test_braces_expand_as_in_a_shell(pattern: str, expanded: list[str]) -> None:
    assert expand_braces(pattern) == expanded


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-01024", "train"),
        ("validation-00000-of-00128", "validation"),
        ("imagenet-val-000012.tar", "validation"),
        ("cifar10-test.parquet", "test"),
        ("data/train-00000-of-00001-a09b74b3ef9c3b56.parquet", "train"),
        ("val/0001.tar", "validation"),
        ("trainer.tar", None),
        ("contest.tar", None),
    ],
)
def test_splits_are_read_off_names(name: str, split: str | None) -> None:
    assert split_in_name(name) == split


def test_splits_can_be_given(tmp_path: Path) -> None:
    _write_files(
        str(tmp_path / "in"),
        {"a.tar": tar_bytes({"cat/1.jpg": b"1"}), "b.tar": tar_bytes({"cat/2.jpg": b"2"})},
    )
    root = str(tmp_path / "in")
    for given_splits in (
        {"train": "a.tar", "validation": "b.tar"},
        {"validation": "b.*"},
        {"validation": f"{root}/b.tar"},
    ):
        rows = _scan(root, tmp_path / "work", **given_splits)[1].to_pylist()
        assert [(row["name"], row["split"]) for row in rows] == [
            ("cat/1.jpg", "train"),
            ("cat/2.jpg", "validation"),
        ]
    rows = _scan(f"{root}/a.tar", tmp_path / "work", validation=f"{root}/b.tar")[1].to_pylist()
    assert [row["split"] for row in rows] == ["train", "validation"]


@pytest.mark.parametrize(
    ("source", "validation"),
    [
        ("{tmp}/a/g", "holdout"),
        ("{tmp}/a/g", "{tmp}/a/g/holdout"),
        ("a/g", "{tmp}/a/g/holdout"),
        ("./a/g", "a/g/holdout"),
        ("a/g/", "b/../a/g/holdout/"),
        ("linked", "holdout"),
        ("linked", "a/g/holdout"),
        ("a/g", "file://{tmp}/a/g/holdout"),
        ("memory://{tmp}/a/g", "memory:/{tmp}/a/g/holdout"),
    ],
)
def test_the_rest_of_a_source_is_without_its_validation_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, validation: str
) -> None:
    files = {f"{top}{name}/{i}.jpg": b"x" for top in ("", "holdout/") for name in ("cat", "dog") for i in range(3)}
    for protocol in ("", "memory://"):
        _write_files(f"{protocol}{tmp_path}/a/g", files)
    (tmp_path / "b").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "a" / "g")
    monkeypatch.chdir(tmp_path)
    _, rows = _scan(source.format(tmp=tmp_path), tmp_path, validation=validation.format(tmp=tmp_path))
    counts = rows.group_by(["split", "class_name"]).aggregate([([], "count_all")]).to_pylist()
    assert {(row["split"], row["class_name"]): row["count_all"] for row in counts} == {
        (split, name): 3 for split in ("train", "validation") for name in ("cat", "dog")
    }


@pytest.mark.parametrize("protocol", ["", "memory://"])
@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("{train,val}/shard-{0..1}.tar", "tars"),
        ("{train,val}/*.tar", "tars"),
        ("{train,val}/shard-[01].tar", "tars"),
        ("{train,val}", "tars"),
        ("{train,val}", "folders"),
        ("{train,val}/*/*.jpg", "folders"),
        ("v1/{train,val}", "folders"),
        ("v{1,2}/{train,val}", "folders"),
        ("v1/{train,val}/cat", "folders"),
    ],
)
def test_patterns_keep_the_split_that_their_folders_name(
    tmp_path: Path, protocol: str, pattern: str, files: str
) -> None:
    root = f"{protocol}{tmp_path}/{{a}}"  # a folder named like no pattern that a shell would expand
    tars = {f"{split}/shard-{i}.tar": tar_bytes({"cat/1.jpg": b"x"}) for split in ("train", "val") for i in range(2)}
    tops = ("", "v1/", "v2/") if pattern.startswith("v") else ("",)
    folders = {f"{top}{split}/cat/{i}.jpg": b"x" for top in tops for split in ("train", "val") for i in range(2)}
    _write_files(root, tars if files == "tars" else folders)
    _, rows = _scan(f"{root}/{pattern}", tmp_path / "work")
    assert set(rows["class_name"].to_pylist()) == {"cat"}
    half = ["train", "validation"] * (len(rows) // 2)
    assert sorted(rows["split"].to_pylist()) == sorted(half)


@pytest.mark.parametrize("protocol", ["", "memory://"])
def test_a_pattern_of_folders_may_name_parts_with_the_same_classes(tmp_path: Path, protocol: str) -> None:
    root = f"{protocol}{tmp_path}/in"
    _write_files(root, {f"part{i}/{name}/{i}.jpg": b"x" for i in range(2) for name in ("cat", "dog")})
    _, rows = _scan(f"{root}/part{{0,1}}", tmp_path / "work")
    assert rows["class_name"].to_pylist() == ["cat", "cat", "dog", "dog"]


def test_patterns_name_some_of_the_files(tmp_path: Path) -> None:
    root = str(tmp_path / "in")
    _write_files(root, {f"x-{i:03d}.tar": b"x" for i in range(12)})
    assert [file.name for file in find(f"{root}/x-{{008..010}}.tar").files] == [
        "x-008.tar",
        "x-009.tar",
        "x-010.tar",
    ]
    assert len(find(f"{root}/x-00*.tar").files) == 10
    _write_files(f"memory://{root}", {f"x-{i:03d}.tar": b"x" for i in range(12)})
    assert len(find(f"memory://{root}/x-{{008..010}}.tar").files) == 3
    assert len(find(f"memory://{root}/x-00*.tar").files) == 10


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "nowhere does not exist"),
        ("no*where", "matches no files"),
        ("memory://nowhere-at-all", "matches no files"),
        ("empty", "matches no files"),
        ("texts", "has 2 files, but none of what is needed: images in class folders, tars"),
        ("nosuchprotocol://x/y", "nosuchprotocol"),
    ],
)
def test_what_is_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    _write_files(str(tmp_path / "texts"), {"a.txt": b"a", "b.csv": b"b"})
    with pytest.raises(UserError, match=message):
        find(source)


# Folders


def test_folder_files_that_are_no_images_are_passed_over(tmp_path: Path) -> None:
    names = {
        "cat/1.jpg": b"1",
        "cat/._1.jpg": b"x",
        "cat/notes.txt": b"x",
        ".cache/2.jpg": b"x",
        "cat/3.JPEG": b"3",
    }
    _write_files(str(tmp_path), names)
    rows = scan_folder(find(str(tmp_path)).files)
    assert rows["name"].to_pylist() == ["cat/1.jpg", "cat/3.JPEG"]


def test_images_outside_class_folders_are_refused(tmp_path: Path) -> None:
    _write_files(str(tmp_path), {"train/cat/1.jpg": b"1", "val/2.jpg": b"2", "other/cat/3.jpg": b"3", "4.jpg": b"4"})
    reasons = _refusals(scan_folder(find(str(tmp_path)).files))
    assert reasons == {
        "val/2.jpg": "not in a class folder",
        "other/cat/3.jpg": "outside the split folders",
        "4.jpg": "outside the split folders",
    }


def test_a_single_class_is_still_a_class(tmp_path: Path) -> None:
    _write_files(str(tmp_path), {"cat/1.jpg": b"1", "cat/2.jpg": b"2"})
    assert set(scan_folder(find(str(tmp_path)).files)["class_name"].to_pylist()) == {"cat"}


def test_links_out_of_a_folder_are_refused(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "in"
    _write_files(str(outside), {"secret.jpg": b"s", "more/2.jpg": b"m"})
    _write_files(str(root), {"cat/1.jpg": b"1"})
    (root / "cat" / "2.jpg").symlink_to(outside / "secret.jpg")
    (root / "cat" / "3.jpg").symlink_to(root / "cat" / "1.jpg")
    (root / "cat" / "4.jpg").symlink_to(root / "cat" / "nothing.jpg")
    (root / "dog").symlink_to(outside / "more")
    (root / "loop").symlink_to(root)
    rows = scan_folder(find(str(root)).files)
    to_folder = "a link to a folder; give its target as the source"
    assert _refusals(rows) == {
        "cat/2.jpg": "a link that leads out of the source",
        "cat/4.jpg": "a link that leads nowhere",
        "dog": to_folder,
        "loop": to_folder,
    }
    assert rows.filter(rows["refused"].is_null())["name"].to_pylist() == ["cat/1.jpg", "cat/3.jpg"]


LATIN = os.fsdecode(b"caf\xe9")


def test_files_and_classes_that_are_not_utf8_are_refused_by_name(tmp_path: Path) -> None:
    files = {"cat/1.jpg": b"x", f"cat/{LATIN}.jpg": b"x", f"{LATIN}/2.jpg": b"x"}
    reason = "its path or class is not UTF-8; rename it"
    _write_files(str(tmp_path / "in"), files)
    _, rows = _scan(str(tmp_path / "in"), tmp_path)
    assert _refusals(rows) == {"cat/caf?.jpg": reason, "caf?/2.jpg": reason}
    assert rows.filter(rows["refused"].is_null())["name"].to_pylist() == ["cat/1.jpg"]
    # Of a member of a tar only the class matters: its bytes are found by their place.
    _, rows = _archive(tmp_path, "a.tar", tar_bytes(files))
    assert _refusals(rows) == {"caf?/2.jpg": reason}
    label = json.dumps({"label": LATIN}).encode()
    _, rows = _archive(tmp_path, "w.tar", tar_bytes({"1.jpg": b"x", "1.json": label}))
    assert _refusals(rows) == {"1.jpg": reason}


@pytest.mark.parametrize("source", [f"{LATIN}.tar", "."], ids=["the archive", "its folder"])
def test_archives_and_sources_that_are_not_utf8_are_told(tmp_path: Path, source: str) -> None:
    _write_files(str(tmp_path), {f"{LATIN}.tar": tar_bytes({"cat/1.jpg": b"x"})})
    with pytest.raises(UserError, match=r"caf\?.* is not UTF-8; rename it"):
        find(f"{tmp_path}/{source}")


def test_archives_may_be_links(tmp_path: Path) -> None:
    """As they are in the cache of the Hugging Face hub."""
    (tmp_path / "blob").write_bytes(tar_bytes({"cat/1.jpg": b"1"}))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").symlink_to(tmp_path / "blob")
    assert _scan(str(tmp_path / "in"), tmp_path / "work")[1]["name"].to_pylist() == ["cat/1.jpg"]


@pytest.mark.parametrize("name", ["cat/pipe.jpg", "pipe.tar"])
def test_a_pipe_is_never_opened(tmp_path: Path, name: str) -> None:
    """Opening one waits for a writer, for ever."""
    (tmp_path / "cat").mkdir()
    os.mkfifo(tmp_path / name)
    if name.endswith(".tar"):
        with pytest.raises(UserError, match=r"none of what is needed.*pipe.tar: not a regular file"):
            find(str(tmp_path))
    else:
        assert _refusals(scan_folder(find(str(tmp_path)).files)) == {name: "not a regular file"}


# Tars


def test_harmful_members_are_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("cat/1.jpg", "../cat/2.jpg", "/cat/3.jpg", "cat/../../4.jpg", "..\\cat\\5.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
        kinds = {
            "sym.jpg": tarfile.SYMTYPE,
            "hard.jpg": tarfile.LNKTYPE,
            "dev.jpg": tarfile.CHRTYPE,
            "fifo.jpg": tarfile.FIFOTYPE,
        }
        for name, kind in kinds.items():
            info = tarfile.TarInfo(f"cat/{name}")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    rows = _archive(tmp_path, "a.tar", out.getvalue())[1]
    climbs = "its path climbs out of the archive"
    assert _refusals(rows) == {
        "../cat/2.jpg": climbs,
        "/cat/3.jpg": climbs,
        "cat/../../4.jpg": climbs,
        "..\\cat\\5.jpg": climbs,
        "cat/sym.jpg": "a link",
        "cat/hard.jpg": "a link",
        "cat/dev.jpg": "not a regular file",
        "cat/fifo.jpg": "not a regular file",
    }
    assert rows.filter(rows["refused"].is_null())["name"].to_pylist() == ["cat/1.jpg"]


@pytest.mark.parametrize("cut", [300, 700, 1024, 1300, 2048])
def test_a_tar_cut_short_is_told(tmp_path: Path, cut: int) -> None:
    whole = tar_bytes({f"cat/{i}.jpg": bytes([i]) * 400 for i in range(1, 4)})
    if cut < 512:
        with pytest.raises(UserError, match=r"a.tar is not a readable tar"):
            _archive(tmp_path, "a.tar", whole[:cut])
        return
    rows = _archive(tmp_path, "a.tar", whole[:cut])[1]
    assert "a.tar" in _refusals(rows)
    assert all(row["offset"] + row["bytes"] <= cut for row in rows.to_pylist())


def test_a_tar_damaged_in_the_middle_is_told(tmp_path: Path) -> None:
    content = bytearray(tar_bytes({f"cat/{i}.jpg": bytes([i]) * 400 for i in range(1, 4)}))
    content[1024 + 148] ^= 1  # the checksum of the second header
    assert "damaged or cut off at byte 1024" in _refusals(_archive(tmp_path, "a.tar", bytes(content))[1])["a.tar"]


def test_damaged_compression_is_told(tmp_path: Path) -> None:
    content = tar_bytes({"cat/1.jpg": np.random.default_rng(0).bytes(9999)}, "w:gz")
    with pytest.raises(UserError, match=r"a.tar.gz cannot be read to its end"):
        _archive(tmp_path, "a.tar.gz", content[:-500])


def test_webdataset_samples_without_a_partner_are_refused(tmp_path: Path) -> None:
    members = {
        "a.jpg": b"a",
        "a.cls": b"1",
        "b.jpg": b"b",
        "c.cls": b"2",
        "d.jpg": b"d",
        "d.json": b"{",
        "e.jpg": b"e",
        "e.json": b'{"label": true}',
        "f.jpg": b"f",
        "f.cls": b"-1",
        "x/a.jpg": b"x",
        "x/a.json": json.dumps({"label": "cat"}).encode(),
    }
    kind, rows = _archive(tmp_path, "a.tar", tar_bytes(members))
    assert kind == "webdataset"
    no_label = "no label beside the image"
    refused = dict.fromkeys(("b.jpg", "e.jpg"), no_label) | {"c": "no image beside its label"}
    refused |= {"d.jpg": "its JSON is not readable", "f.jpg": "a class number beyond 0 … 999,999"}
    assert _refusals(rows) == refused
    good = [(row["name"], row["number"], row["class_name"]) for row in rows.to_pylist() if not row["refused"]]
    assert good == [("a.jpg", 1, None), ("x/a.jpg", None, "cat")]


@pytest.mark.parametrize("stray", ["info.json", "cat/notes.json", "cat/labels.cls", "cat/1/meta.json"])
def test_a_stray_json_makes_no_webdataset(tmp_path: Path, stray: str) -> None:
    members = {"cat/1.jpg": b"1", stray: b"{}", "dog/2.jpg": b"2"}
    kind, rows = _archive(tmp_path, "a.tar", tar_bytes(members))
    assert (kind, rows["class_name"].to_pylist(), _refusals(rows)) == ("tar", ["cat", "dog"], {})


# TFRecords


def test_crc32c_of_the_standard() -> None:
    """RFC 3720, appendix B.4, and the check value of every CRC catalogue."""
    assert crc32c(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283
    assert crc32c(np.zeros(32, np.uint8)) == 0x8A9136AA
    assert crc32c(np.full(32, 0xFF, np.uint8)) == 0x62A8AB43


@given(st.one_of(st.binary(max_size=20), st.binary(min_size=2040, max_size=2060), st.binary(max_size=9000)))
@settings(deadline=None)
def test_crc32c_agrees_with_tensorboardx(data: bytes) -> None:
    assert masked_crc32c(np.frombuffer(data, np.uint8)) == reference_masked_crc32c(data)


@given(
    st.dictionaries(
        st.text(),
        st.one_of(
            st.binary(),
            st.integers(-(2**63), 2**63 - 1),
            st.lists(st.integers(-(2**63), 2**63 - 1)),
            st.lists(st.floats(width=32), min_size=1),
        ),
        max_size=6,
    )
)
def test_examples_of_protobuf_are_understood(features: dict[str, Any]) -> None:
    serialized = example(features)
    parsed = parse_example(serialized)
    for name, value in features.items():
        if isinstance(value, bytes):
            assert [serialized[slice(*span)] for span in parsed[name]] == [value]  # type: ignore[misc]
        elif isinstance(value, int):
            assert parsed[name] == [value]
        elif value and isinstance(value[0], float):
            assert parsed[name] == []
        else:
            assert parsed[name] == value


@given(st.binary(max_size=300))
@also(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@also(b"\x0a\x02\x0a\x7f")
def test_any_bytes_are_an_example_or_a_value_error(data: bytes) -> None:
    try:
        parsed = parse_example(data)
    except ValueError:
        return
    for values in parsed.values():
        assert all(isinstance(v, int) or 0 <= v[0] <= v[1] <= len(data) for v in values)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_damage_to_a_tfrecord_is_refused_never_believed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    scratch = tmp_path_factory.mktemp("records")
    images = [bytes([i]) * 50 for i in range(3)]
    whole = tfrecord_bytes(
        [example({"image/encoded": image, "image/class/label": i}) for i, image in enumerate(images)],
        scratch / "r",
    )
    damaged = bytearray(whole)
    at = data.draw(st.integers(12, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    del damaged[data.draw(st.integers(at + 1, len(damaged))) :]
    rows = _archive(scratch, "a.tfrecord", bytes(damaged))[1]
    assert _refusals(rows)
    for row in rows.to_pylist():
        if not row["refused"]:
            stored = bytes(damaged[row["offset"] : row["offset"] + row["bytes"]])
            assert stored == images[row["number"]]


def test_checksums_are_told_apart(tmp_path: Path) -> None:
    one = tfrecord_bytes([example({"image/encoded": b"x", "image/class/label": 1})], tmp_path / "r")
    flipped = bytearray(one * 3)
    flipped[len(one) + 20] ^= 1
    rows = _archive(tmp_path, "data.tfrecord", bytes(flipped))[1]
    assert _refusals(rows) == {"data.tfrecord": f"bad checksum of the record at byte {len(one)}"}
    assert len(rows) == 3
    flipped = bytearray(one * 3)
    flipped[len(one)] ^= 1
    rows = _archive(tmp_path, "length.tfrecord", bytes(flipped))[1]
    assert f"bad checksum of the record length at byte {len(one)}" in _refusals(rows)["length.tfrecord"]
    rows = _archive(tmp_path, "short.tfrecord", one + one[:-1])[1]
    assert f"truncated: the record at byte {len(one)}" in _refusals(rows)["short.tfrecord"]


def test_a_length_that_lies_is_not_believed(tmp_path: Path) -> None:
    header = struct.pack("<Q", 2**60)
    content = header + struct.pack("<I", reference_masked_crc32c(header)) + b"x" * 100
    assert "truncated" in _refusals(_archive(tmp_path, "a.tfrecord", content)[1])["a.tfrecord"]


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        ({"image/class/label": 1}, "no feature image/encoded"),
        ({"image/encoded": 5, "image/class/label": 1}, "no feature image/encoded"),
        ({"image/encoded": b"x"}, "no class number from 0 to 999,999 in image/class/label"),
        ({"image/encoded": b"x", "image/class/label": -1}, "no class number from 0 to 999,999 in image/class/label"),
    ],
)
def test_records_without_image_or_label_are_refused(tmp_path: Path, features: dict[str, Any], reason: str) -> None:
    content = tfrecord_bytes([example(features)], tmp_path / "r")
    assert _refusals(_archive(tmp_path, "a.tfrecord", content)[1]) == {"a.tfrecord:0": reason}


# Parquet


def _parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def test_parquet_without_names_or_structs(tmp_path: Path) -> None:
    table = pa.table({"img": pa.array([b"a", b"b"], pa.binary()), "label": pa.array(["dog", "cat"])})
    rows = _archive(tmp_path, "a.parquet", _parquet(table))[1].to_pylist()
    assert [(row["name"], row["class_name"], row["bytes"]) for row in rows] == [
        ("a.parquet:0", "dog", 1),
        ("a.parquet:1", "cat", 1),
    ]


def test_parquet_rows_that_lack_something_are_refused(tmp_path: Path) -> None:
    struct_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = [
        {"bytes": b"a", "path": "1"},
        {"bytes": None, "path": "2"},
        None,
        *({"bytes": b"d", "path": str(i)} for i in (4, 5)),
    ]
    table = pa.table({"image": pa.array(images, struct_type), "label": pa.array([0, 1, 2, -1, None])})
    reasons = _refusals(_archive(tmp_path, "a.parquet", _parquet(table))[1])
    missing = "no image bytes in the file"
    assert reasons == {"2": missing, "a.parquet:2": missing, "4": "no label", "5": "no label"}


def test_parquet_labels_outside_the_names_are_refused(tmp_path: Path) -> None:
    images = [image for image in made() if image.number == 2][:2]
    content = parquet_bytes(images)
    table = pq.read_table(io.BytesIO(content))
    table = table.set_column(1, "label", pa.array([2, 3]))
    reasons = _refusals(_archive(tmp_path, "a.parquet", _parquet(table))[1])
    assert list(reasons.values()) == ["label 3, but 3 classes"]


def test_parquet_with_other_columns_is_told(tmp_path: Path) -> None:
    table = pa.table({"text": ["a"], "more": ["b"]})
    with pytest.raises(UserError, match=r"a.parquet has the columns text, more; needed are image"):
        _archive(tmp_path, "a.parquet", _parquet(table))


@pytest.mark.parametrize(
    "content", [b"", b"PAR1" + bytes(50), b"something else entirely", parquet_bytes(list(made()))[:900]]
)
def test_files_that_are_none_of_these(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"a.parquet is (neither tar, TFRecord nor Parquet|not readable Parquet)"):
        _archive(tmp_path, "a.parquet", content)


# Classes


def _rows(*classes: tuple[int | None, str | None]) -> pa.Table:
    numbers = pa.array([number for number, _ in classes], pa.int64())
    return pa.table({"number": numbers, "class_name": pa.array([name for _, name in classes], pa.string())})


def test_names_are_numbered_in_sorted_order() -> None:
    classes, labels = number_classes(_rows((None, "b"), (None, "a"), (None, "10"), (None, "b")), (), False)
    assert classes == ("10", "a", "b")
    assert labels.tolist() == [2, 1, 0, 2]
    assert labels.dtype == np.int32


@pytest.mark.parametrize(
    ("numbers", "known", "one_based", "classes", "labels"),
    [
        ([2, 0], (), False, ("0", "1", "2"), [2, 0]),
        ([2, 1], (), True, ("1", "2"), [1, 0]),
        ([2, 0], (), True, ("0", "1", "2"), [2, 0]),
        ([2, 1], (), False, ("0", "1", "2"), [2, 1]),
        ([0, 1], ("a", "b", "c"), False, ("a", "b", "c"), [0, 1]),
    ],
)
def test_numbers_are_kept(numbers: list[int], known: tuple, one_based: bool, classes: tuple, labels: list[int]) -> None:
    found, labels_found = number_classes(_rows(*((number, None) for number in numbers)), known, one_based)
    assert (found, labels_found.tolist()) == (classes, labels)


def test_numbers_and_names_do_not_mix() -> None:
    with pytest.raises(UserError, match="some images have class numbers, others only class names"):
        number_classes(_rows((1, None), (None, "a")), (), False)


def test_absurd_numbers_are_refused() -> None:
    with pytest.raises(UserError, match="class numbers go from 7 to 2000000000"):
        number_classes(_rows((7, None), (2_000_000_000, None)), (), False)


def test_a_source_file_is_remote_by_its_url() -> None:
    assert SourceFile("gs://a/b.tar", "b.tar", 1, "").remote
    assert not SourceFile("/a/b.tar", "b.tar", 1, "").remote


def test_a_source_without_images_is_one_clear_line():
    with pytest.raises(UserError, match="the source has no image; give a folder"):
        number_classes(_rows(), (), False)
