"""`prepare` from end to end: same images out as in, killed and resumed, broken files, refusals."""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console
from tests.support.full_disk import full_disk
from tests.support.made_sources import (
    CLASSES,
    SOURCES,
    Made,
    folder_files,
    jpeg,
    made,
    parquet_bytes,
    tar_bytes,
    test_data,
    undecodable_jpeg,
    write_files,
)

from podium.cli.arguments.prepare import Prepare
from podium.cli.prepare import show_preparation
from podium.data.dataset.manifest import MANIFEST, WORK, read_manifest
from podium.data.dataset.shards import ImageSet
from podium.data.dataset.verify import REPORT, verify
from podium.data.prepare import Report, prepare, prepared
from podium.data.prepare.layout import assign_splits
from podium.data.prepare.sources.rows import Rows
from podium.data.prepare_options import FOR_EVALUATION, FOR_TRAINING, PrepareOptions
from podium.errors import UserError


def _contents(directory: Path) -> Counter[tuple[str, str, bytes]]:
    found: Counter[tuple[str, str, bytes]] = Counter()
    for split in read_manifest(directory).splits:
        images = ImageSet.open(directory, split)
        found.update((split, images.classes[images.labels[i]], images.image(i).tobytes()) for i in range(len(images)))
    return found


def _folder(root: Path, files: dict[str, bytes] | None = None) -> Path:
    write_files(str(root), folder_files() if files is None else files)
    return root


def _many(count: int) -> dict[str, bytes]:
    pictures = [jpeg(i, (8, 8)) for i in range(min(count, 100))]
    return {f"{CLASSES[i % 3]}/{i:05d}.jpg": pictures[i % 100] for i in range(count)}


# The same images out as in


@pytest.mark.parametrize("protocol", ["", "memory://"])
@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_images(tmp_path: Path, name: str, protocol: str) -> None:
    files, kind, classes = SOURCES[name]
    root = f"{protocol}{tmp_path}/source"
    write_files(root, files(tmp_path))
    report = prepare(root, tmp_path / "out")
    assert report.kind == kind
    assert report.images == {"train": 24, "validation": 6}
    assert (report.classes, report.reencoded, report.left_out) == (3, 0, ())
    assert _contents(tmp_path / "out") == Counter((m.split, classes[m.number], m.image) for m in made())
    assert verify(tmp_path / "out").classes == classes
    assert not (tmp_path / "out" / WORK).exists()


def test_names_and_sizes_belong_to_their_images(tmp_path: Path) -> None:
    prepare(_folder(tmp_path / "in"), tmp_path / "out")
    by_name = folder_files()
    images = ImageSet.open(tmp_path / "out", "train")
    for i in range(len(images)):
        stored = images.image(i).tobytes()
        assert by_name[images.name(i)] == stored
        with Image.open(io.BytesIO(stored)) as picture:
            assert tuple(images.sizes[i]) == picture.size


def test_real_images_stay_bit_for_bit(tmp_path: Path) -> None:
    place = test_data()
    if place is None:
        return
    report = prepare(place / "imagenet-sample.tar", tmp_path / "out", PrepareOptions(check="decode"))
    assert (report.images, report.classes, report.left_out) == ({"train": 334}, 334, ())
    with tarfile.open(place / "imagenet-sample.tar") as tar:
        originals = Counter(
            ("train", member.name.split("/")[1], tar.extractfile(member).read())  # type: ignore[union-attr]
            for member in tar
        )
    assert _contents(tmp_path / "out") == originals


# Order and splits


def test_the_stored_order_is_random_seeded_and_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in", _many(60))
    options = {
        "a": PrepareOptions(workers=1),
        "b": PrepareOptions(workers=4),
        "c": PrepareOptions(seed=1),
    }
    names, hashes = {}, {}
    for out, chosen in options.items():
        prepare(source, tmp_path / out, chosen)
        images = ImageSet.open(tmp_path / out, "train")
        names[out] = [images.name(i) for i in range(len(images))]
        hashes[out] = images.content_hash
    assert hashes["a"] == hashes["b"] != hashes["c"]
    assert sorted(names["a"]) == sorted(names["c"])
    assert names["a"] != sorted(names["a"]) != names["c"] != names["a"]


def _splits(labels: dict[str, int], share: float, seed: int = 0, *, numbered: bool = False) -> dict[str, str]:
    rows = Rows("source")
    rows.refuse("0/broken.jpg", "a link")
    for name, label in labels.items():
        rows.add(name, 0, 1, **({"number": label} if numbered else {"class_name": f"class {label}"}))
    table = assign_splits(rows.table(), share, seed)[0].slice(1)
    return dict(zip(table["name"].to_pylist(), table["split"].to_pylist(), strict=True))


def _labels(counts: list[int]) -> dict[str, int]:
    return {f"{label}/{i}.jpg": label for label, count in enumerate(counts) for i in range(count)}


def _names(splits: dict[str, str], split: str) -> set[str]:
    return {name for name, chosen in splits.items() if chosen == split}


_COUNTS = st.lists(st.integers(1, 30), min_size=1, max_size=20).filter(lambda counts: max(counts) > 1)


def test_a_share_is_held_out(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in", _many(60))
    report = prepare(source, tmp_path / "out", PrepareOptions(validation_share=0.2))
    held_out = report.images["validation"]
    assert 6 <= held_out <= 18
    assert report.images["train"] == 60 - held_out
    assert f"{held_out} of 60 images are held out for validation" in report.notes


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_a_share_of_many_images_is_nearly_exact(share: float) -> None:
    held_out = len(_names(_splits(_labels([1000] * 10), share), "validation"))
    assert abs(held_out - share * 10_000) < 4 * (share * (1 - share) * 10_000) ** 0.5


@settings(deadline=None)
@given(
    counts=_COUNTS,
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 99),
    numbered=st.booleans(),
    shuffle=st.randoms(use_true_random=False),
)
def test_every_class_keeps_a_training_image(
    counts: list[int], share: float, seed: int, numbered: bool, shuffle: random.Random
) -> None:
    labels = _labels(counts)
    splits = _splits(labels, share, seed, numbered=numbered)
    assert {labels[name] for name in _names(splits, "train")} == set(range(len(counts)))
    assert _names(splits, "validation")
    shuffled = list(labels.items())
    shuffle.shuffle(shuffled)
    assert _splits(dict(shuffled), share, seed, numbered=numbered) == splits


@settings(deadline=None)
@given(counts=_COUNTS, more=st.lists(st.integers(0, 30), max_size=25), share=st.floats(0.01, 0.99))
def test_an_image_stays_on_its_side_when_others_are_added(counts: list[int], more: list[int], share: float) -> None:
    labels = _labels(counts)
    before = _splits(labels, share)
    after = _splits(labels | {f"{label}/new {i}.jpg": label for label, n in enumerate(more) for i in range(n)}, share)
    alone = Counter(labels[name] for name in _names(before, "train"))
    for name, split in before.items():
        # But for those that were kept back lest a class or the validation have none.
        only_one = alone[labels[name]] == 1 if split == "train" else len(_names(before, "validation")) == 1
        assert after[name] == split or only_one


def test_a_share_of_one_image_a_class_is_refused(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in", {f"{name}/1.jpg": jpeg(1) for name in CLASSES})
    with pytest.raises(UserError, match=r"validation_share=0.1 of 3 images of 3 classes leaves a class none"):
        prepare(source, tmp_path / "out", PrepareOptions(validation_share=0.1))


def test_a_share_is_for_sources_without_validation_images(tmp_path: Path) -> None:
    report = prepare(_folder(tmp_path / "in"), tmp_path / "out", PrepareOptions(validation_share=0.5))
    assert report.images == {"train": 24, "validation": 6}
    assert any("validation_share is not used" in note for note in report.notes)


def test_test_images_serve_where_there_are_no_validation_images(tmp_path: Path) -> None:
    images = {f"{split}/cat/{i}.jpg": jpeg(i) for i, split in enumerate(["train", "train", "test"])}
    assert prepare(_folder(tmp_path / "a", images), tmp_path / "out-a").images == {
        "train": 2,
        "validation": 1,
    }
    images["val/cat/9.jpg"] = jpeg(9)
    report = prepare(_folder(tmp_path / "b", images), tmp_path / "out-b")
    assert report.images == {"train": 2, "validation": 1}
    assert any("1 test images are not used" in note for note in report.notes)
    assert ("validation", "cat", jpeg(9)) in _contents(tmp_path / "out-b")


def _part(folder: str) -> dict[str, bytes]:
    return {name: image for name, image in folder_files().items() if name.startswith(folder)}


@pytest.mark.parametrize(
    "tars",
    [
        {"photos.tar": folder_files()},
        {"both-train-val.tar": folder_files()},
        {"val.tar": folder_files("train-and-val/")},
        {"train.tar": _part("train"), "val.tar": _part("val")},
        {"a.tar": _part("train"), "b.tar": _part("val")},
        {"train.tar": {name.removeprefix("train/"): image for name, image in _part("train").items()}}
        | {"test.tar": {name.removeprefix("val/"): image for name, image in _part("val").items()}},
    ],
    ids=lambda tars: " ".join(tars),
)
def test_split_folders_in_a_tar_are_no_classes_and_count_more_than_its_name(
    tmp_path: Path, tars: dict[str, dict[str, bytes]]
) -> None:
    source = _folder(tmp_path / "in", {name: tar_bytes(files) for name, files in tars.items()})
    prepare(source, tmp_path / "out")
    assert _contents(tmp_path / "out") == Counter((m.split, m.class_name, m.image) for m in made())


def test_a_split_folder_alone_in_a_tar_is_no_class(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in", {"train.tar": tar_bytes(_part("train"))}) / "train.tar"
    report = prepare(source, tmp_path / "out")
    assert (report.images, read_manifest(tmp_path / "out").classes) == ({"train": 24}, CLASSES)


@pytest.mark.parametrize("tars", [False, True])
@pytest.mark.parametrize("options", [{"validation": "val*"}, {"train": "train*", "validation": "val*"}])
def test_splits_given_by_hand_agree_with_the_names(tmp_path: Path, tars: bool, options: dict[str, Any]) -> None:
    files = folder_files() | {f"test/{name}": image for name, image in _many(3).items()}
    if tars:
        parts = {top: {n: c for n, c in files.items() if n.startswith(top)} for top in ("train", "val", "test")}
        files = {f"{top}.tar": tar_bytes(part) for top, part in parts.items()}
    else:
        options = {split: pattern.rstrip("*") for split, pattern in options.items()}
    report = prepare(_folder(tmp_path / "in", files), tmp_path / "out", PrepareOptions(**options))
    assert _contents(tmp_path / "out") == Counter((m.split, m.class_name, m.image) for m in made())
    # Where training images are all the rest, test images are still none of them.
    assert any("3 test images are not used" in note for note in report.notes) == ("train" not in options)


def test_what_is_given_counts_more_than_the_folders_in_a_tar(tmp_path: Path) -> None:
    tars = {"new.tar": tar_bytes(_part("train")), "old.tar": tar_bytes(folder_files("old/"))}
    options = PrepareOptions(train="old.tar", validation="new.tar")
    report = prepare(_folder(tmp_path / "in", tars), tmp_path / "out", options)
    assert (report.images, read_manifest(tmp_path / "out").classes) == ({"train": 30, "validation": 24}, CLASSES)


def test_validation_classes_must_be_trained(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in", {"train/cat/1.jpg": jpeg(1), "val/cat/2.jpg": jpeg(2), "val/emu/3.jpg": jpeg(3)})
    with pytest.raises(UserError, match="1 classes have validation images but no training images, 'emu'"):
        prepare(source, tmp_path / "out")


# Broken and refused


def _spoiled() -> dict[str, bytes]:
    good = jpeg(1)
    return folder_files() | {
        "train/cat/truncated.jpg": good[:-2],
        "train/cat/empty.jpg": b"",
        "train/cat/text.jpg": b"text",
        "val/owl/huge.jpg": good.replace(b"\x00\x10\x00\x18\x03", b"\xff\xff\xff\xff\x03"),
        "val/flat.jpg": good,
        "extra/cat/1.jpg": good,
    }


def test_broken_images_are_left_out_and_listed(tmp_path: Path) -> None:
    report = prepare(_folder(tmp_path / "in", _spoiled()), tmp_path / "out")
    assert report.images == {"train": 24, "validation": 6}
    reasons = {item.name: (item.split, item.reason) for item in report.left_out}
    assert reasons == {
        "train/cat/truncated.jpg": ("train", "truncated: the JPEG has no end marker"),
        "train/cat/empty.jpg": ("train", "empty file"),
        "train/cat/text.jpg": ("train", "a file of a kind that Pillow cannot read"),
        "val/owl/huge.jpg": ("validation", "65535×65535 pixels is over the limit of 64 Mpx"),
        "val/flat.jpg": ("validation", "not in a class folder"),
        "extra/cat/1.jpg": ("train", "outside the split folders"),
    }
    listed = json.loads((tmp_path / "out" / REPORT).read_text())["left_out"]
    assert {item["name"] for item in listed} == set(reasons)
    assert _contents(tmp_path / "out") == Counter((m.split, m.class_name, m.image) for m in made())


@pytest.mark.parametrize("name", ["train/cat/truncated.jpg", "val/flat.jpg"])
def test_strict_fails_instead(tmp_path: Path, name: str) -> None:
    source = _folder(tmp_path / "in", folder_files() | {name: _spoiled()[name]})
    with pytest.raises(UserError, match=f"{name} cannot be used: "):
        prepare(source, tmp_path / "out", PrepareOptions(strict=True))
    with pytest.raises(UserError, match="is unfinished"):
        ImageSet.open(tmp_path / "out", "train")
    # Shards finished without `strict` do not hide what they left out.
    prepare(source, tmp_path / "out")
    assert len(prepare(source, tmp_path / "out").left_out) == 1


def test_strict_fails_on_what_a_finished_directory_left_out(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in", folder_files() | {"train/cat/text.jpg": b"text"})
    prepare(source, tmp_path / "out")
    with pytest.raises(UserError, match=r"train/cat/text.jpg cannot be used: a file of a kind"):
        prepare(source, tmp_path / "out", PrepareOptions(strict=True))
    assert len(prepare(source, tmp_path / "out").left_out) == 1


def test_nothing_usable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cat/1.jpg cannot be used: empty file \(and 1 more\)"):
        prepare(
            _folder(tmp_path / "a", {"cat/1.jpg": b"", "cat/2.jpg": b""}),
            tmp_path / "out-a",
            PrepareOptions(workers=1),
        )
    with pytest.raises(UserError, match=r"val/1.jpg cannot be used: not in a class folder"):
        prepare(_folder(tmp_path / "b", {"train/cat/1.jpg": jpeg(1), "val/1.jpg": jpeg(1)}), tmp_path / "out-b")


def test_images_whose_names_are_not_utf8_are_left_out_and_listed(tmp_path: Path) -> None:
    latin = os.fsdecode(b"caf\xe9")
    source = _folder(tmp_path / "in", folder_files() | {f"train/cat/{latin}.jpg": jpeg(1)})
    report = prepare(source, tmp_path / "out")
    assert report.images == {"train": 24, "validation": 6}
    assert [(item.name, item.reason) for item in report.left_out] == [
        ("train/cat/caf?.jpg", "its path or class is not UTF-8; rename it")
    ]
    nothing_else = _folder(tmp_path / "b", {f"{latin}/{i}.jpg": jpeg(i) for i in range(2)})
    with pytest.raises(UserError, match=r"caf\?/0.jpg cannot be used: .* is not UTF-8; rename it \(and 1 more\)"):
        prepare(nothing_else, tmp_path / "out-b", PrepareOptions(validation_share=0.1))


def test_a_damaged_scan_is_found_where_an_index_is_built_and_else_where_asked(tmp_path: Path) -> None:
    damaged = {f"train/cat/{side}.jpg": undecodable_jpeg((side, side)) for side in (64, 200)}
    source = _folder(tmp_path / "in", folder_files() | damaged)
    left_out = prepare(source, tmp_path / "a").left_out
    assert [(item.name, item.reason) for item in left_out] == [
        ("train/cat/200.jpg", "does not decode: the JPEG data are corrupt")
    ]
    left_out = prepare(source, tmp_path / "b", PrepareOptions(check="decode")).left_out
    assert sorted(item.name for item in left_out) == ["train/cat/200.jpg", "train/cat/64.jpg"]


def test_other_formats_are_reencoded_and_counted(tmp_path: Path) -> None:
    source = _folder(
        tmp_path / "in",
        {"cat/1.png": jpeg(1, format="PNG"), "cat/2.jpg": jpeg(2), "dog/3.JPEG": jpeg(3, mode="CMYK")},
    )
    report = prepare(source, tmp_path / "out")
    assert (report.images, report.reencoded) == ({"train": 3}, 2)
    images = ImageSet.open(tmp_path / "out", "train")
    for i in range(3):
        with Image.open(io.BytesIO(images.image(i).tobytes())) as picture:
            assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (24, 16))


def test_files_that_vanish_or_change_meanwhile_are_left_out(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in", _many(300))
    prepare(source, tmp_path / "order")
    stored = ImageSet.open(tmp_path / "order", "train")
    gone, changed = (
        stored.name(298),
        stored.name(299),
    )  # of the same source and seed, so written last here as well

    def meddle(stage: str, done: int, total: int) -> None:
        (source / gone).unlink(missing_ok=True)
        (source / changed).write_bytes(b"short")

    report = prepare(source, tmp_path / "out", PrepareOptions(workers=1), progress=meddle)
    reasons = {item.name: item.reason for item in report.left_out}
    assert reasons[gone] == "could not be read: No such file or directory"
    assert "it changed while it was prepared" in reasons[changed]
    assert report.images == {"train": 298}


def test_mixed_archives_are_told(tmp_path: Path) -> None:
    files = SOURCES["parquet"][0](tmp_path) | {"x.tar": tar_bytes({"cat/1.jpg": jpeg(1)})}
    source = _folder(tmp_path / "in", files)
    with pytest.raises(UserError, match="the source mixes parquet and tar"):
        prepare(source, tmp_path / "out")
    # Nothing was finished, so another choice may begin in the same place.
    assert prepare(source, tmp_path / "out", PrepareOptions(train="x.tar")).images == {"train": 1}


@pytest.mark.parametrize(
    "options", [{"validation_share": 1.0}, {"validation_share": -0.1}, {"seed": -1}, {"workers": 0}]
)
def test_absurd_options_are_refused(options: dict) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        PrepareOptions(**options)


# Where it is put


def test_a_finished_directory_is_recognised_and_another_is_never_overwritten(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in")
    first = prepare(source, tmp_path / "out")
    written = (tmp_path / "out" / MANIFEST).stat().st_mtime_ns
    assert prepare(source, tmp_path / "out") == first
    assert (tmp_path / "out" / MANIFEST).stat().st_mtime_ns == written
    for other in (PrepareOptions(seed=1), PrepareOptions(check="decode")):
        with pytest.raises(UserError, match="was prepared from another source or with other options"):
            prepare(source, tmp_path / "out", other)
    write_files(str(source), {"train/cat/new.jpg": jpeg(1)})
    with pytest.raises(UserError, match="was prepared from another source"):
        prepare(source, tmp_path / "out")


@pytest.mark.parametrize("name", ["thesis.tex", MANIFEST])
def test_a_directory_with_other_files_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text('{"name": "an app", "icons": []}')
    with pytest.raises(UserError, match="holds other files"):
        prepare(_folder(tmp_path / "in"), tmp_path / "out")
    with pytest.raises(UserError, match="could not be made"):
        prepare(tmp_path / "in", tmp_path / "out" / name)


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / WORK).write_text("a file in the place of the work folder")
    with pytest.raises(UserError, match=r"out could not be written: File exists; make room or make it writable"):
        prepare(_folder(tmp_path / "in"), tmp_path / "out")


@pytest.mark.parametrize("kind", ["folder", "tar.gz", "parquet"])
def test_a_full_disk_is_one_line_and_the_same_command_resumes(tmp_path: Path, kind: str) -> None:
    files = {"folder": folder_files(), "tar.gz": {"all.tar.gz": tar_bytes(folder_files(), "w:gz")}}
    source = _folder(tmp_path / "in", files.get(kind) or SOURCES[kind][0](tmp_path))
    with full_disk(4000), pytest.raises(UserError, match=r"out could not be written: File too large; make room"):
        prepare(source, tmp_path / "out")
    assert prepare(source, tmp_path / "out").images == {"train": 24, "validation": 6}
    verify(tmp_path / "out")


def test_a_terminal_that_is_gone_is_not_taken_for_a_disk(tmp_path: Path) -> None:
    def gone(stage: str, done: int, total: int) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        prepare(_folder(tmp_path / "in"), tmp_path / "out", progress=gone)


def test_two_at_once_prepare_once(tmp_path: Path) -> None:
    source, reports = _folder(tmp_path / "in", _many(300)), []
    said: list[str] = []

    def work() -> None:
        reports.append(prepare(source, tmp_path / "out", say=said.append))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 3
    assert reports[0] == reports[1] == reports[2]
    verify(tmp_path / "out")


# Killed and resumed

_CHILD = """
import sys, threading
from podium.data.prepare import prepare
from podium.data.prepare_options import PrepareOptions

def hold(stage, done, total):  # lets three of the six shards be finished, then waits for the end
    if stage == "writing images" and done > 0.6 * total:
        print("three shards are finished", flush=True)
        threading.Event().wait()

prepare(sys.argv[1], sys.argv[2], PrepareOptions(workers=1), progress=hold)
"""


def _kill_halfway(source: Path, out: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _CHILD, str(source), str(out)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    assert line == "three shards are finished\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "tar.gz"])
def test_a_killed_preparation_resumes(tmp_path: Path, kind: str) -> None:
    images = _many(700)
    if kind == "folder":
        source = _folder(tmp_path / "in", images)
    else:
        source = _folder(tmp_path / "in", {"all.tar.gz": tar_bytes(images | {"cat/bad.jpg": b"x"}, "w:gz")})
    out = tmp_path / "out"
    _kill_halfway(source, out)
    with pytest.raises(UserError, match="is unfinished; run the same podium prepare again"):
        ImageSet.open(out, "train")
    with pytest.raises(UserError, match="holds an unfinished preparation of another source or with other options"):
        prepare(source, out, PrepareOptions(seed=5))
    finished = {path.name: path.stat().st_ino for path in out.glob("*.arrow")}
    assert len(finished) == 3

    (out / ".train-00005-of-00006.arrow.1.tmp").write_text("what a killed writer leaves")
    report = prepare(source, out)
    assert report.shards_resumed == 3
    assert {name: (out / name).stat().st_ino for name in finished} == finished, "finished shards were written again"
    assert {path.name for path in out.iterdir()} == {
        MANIFEST,
        REPORT,
        *(f"train-{i:05d}-of-00006.arrow" for i in range(6)),
    }

    whole = prepare(source, tmp_path / "at-once")
    assert (whole.images, whole.left_out) == (report.images, report.left_out)
    assert verify(out).content_hash == verify(tmp_path / "at-once").content_hash


@pytest.mark.slow
def test_a_shard_that_was_lost_meanwhile_is_written_again(tmp_path: Path) -> None:
    source, out = _folder(tmp_path / "in", _many(700)), tmp_path / "out"
    _kill_halfway(source, out)
    lost, short = sorted(out.glob("*.arrow"))[:2]
    lost.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    assert prepare(source, out).shards_resumed == 1
    verify(out)


_KILLED_AT_THE_END = """
import os, shutil, signal, sys
from podium.data.prepare import prepare
from podium.data.prepare_options import FOR_TRAINING

shutil.rmtree = lambda path: os.kill(os.getpid(), signal.SIGKILL)  # when the manifest is written
prepare(sys.argv[1], sys.argv[2], FOR_TRAINING)
"""


@pytest.mark.slow
@pytest.mark.parametrize("again", ["prepare", "prepared"])
def test_the_work_folder_of_a_finished_directory_is_removed(tmp_path: Path, again: str) -> None:
    files = {"all.tar.gz": tar_bytes({f"{m.class_name}/{m.file}": m.image for m in made()}, "w:gz")}
    source = _folder(tmp_path / "in", files)
    out, _ = _prepared(source, tmp_path / "cache")
    shutil.rmtree(out)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", _KILLED_AT_THE_END, str(source), str(out)], env=environment)
    assert killed.returncode == -signal.SIGKILL
    assert (out / MANIFEST).exists()
    assert (out / WORK / "00000.copy").exists()
    with pytest.raises(UserError, match="another source or with other options"):
        prepare(source, out)
    assert (out / WORK).exists()
    if again == "prepare":
        assert sum(prepare(source, out, FOR_TRAINING).images.values()) == 30
    else:
        assert _prepared(source, tmp_path / "cache") == (out, [])
    assert not (out / WORK).exists()
    verify(out)


class _Stopped(Exception):
    pass


def _stop_halfway(stage: str, done: int, total: int) -> None:
    if stage == "writing images" and done > total / 2:
        raise _Stopped


def _archives() -> dict[str, bytes]:
    images = _many(300)
    rows = [Made("train", CLASSES.index(name[:3]), name, image) for name, image in images.items()]
    tar, tar_gz = (tar_bytes(images, mode) for mode in ("w", "w:gz"))
    return {"photos.tar": tar, "photos.tar.gz": tar_gz, "photos.parquet": parquet_bytes(rows)}


@pytest.mark.parametrize("out", ["out", "moved/out"])
@pytest.mark.parametrize("name", ["photos.tar", "photos.tar.gz", "photos.parquet"])
def test_a_stopped_preparation_resumes_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, out: str
) -> None:
    _folder(tmp_path / "in", {name: _archives()[name]})
    (tmp_path / "moved").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(_Stopped):
        prepare(f"in/{name}", "out", PrepareOptions(workers=1), progress=_stop_halfway)
    (tmp_path / "out").rename(tmp_path / out)
    monkeypatch.chdir("/")
    report = prepare(tmp_path / "in" / name, tmp_path / out)
    assert (report.images, report.shards_resumed, report.left_out) == ({"train": 300}, 1, ())
    verify(tmp_path / out)


@pytest.mark.parametrize("lost", ["in/photos.tar", f"out/{WORK}/00000.copy", f"out/{WORK}/00000.images"])
def test_an_archive_that_is_gone_meanwhile_ends_the_run_instead_of_losing_images(tmp_path: Path, lost: str) -> None:
    name = {"tar": "photos.tar", "copy": "photos.tar.gz", "images": "photos.parquet"}[lost.rpartition(".")[2]]
    source, gone = _folder(tmp_path / "in", {name: _archives()[name]}) / name, tmp_path / lost

    def meddle(stage: str, done: int, total: int) -> None:
        if stage == "writing images" and gone.exists():
            gone.rename(tmp_path / "gone")

    with pytest.raises(UserError, match=f"{gone} could not be read: No such file or directory; put it back and run"):
        prepare(source, tmp_path / "out", PrepareOptions(workers=1), progress=meddle)
    if gone == source:
        (tmp_path / "gone").rename(source)
    assert prepare(source, tmp_path / "out").images == {"train": 300}


# For `podium train --data` and the command line


def _prepared(source: Path | str, cache: Path, options: PrepareOptions = FOR_TRAINING) -> tuple[Path, list[str]]:
    said: list[str] = []
    return prepared(source, cache, options, say=said.append, progress=lambda stage, done, total: None), said


def test_an_unprepared_source_is_prepared_into_the_cache_once(tmp_path: Path) -> None:
    source = _folder(tmp_path / "my photos", _many(40))
    directory, said = _prepared(source, tmp_path / "cache")
    assert directory.parent == tmp_path / "cache"
    assert directory.name.startswith("my-photos-")
    assert "is not prepared yet: copying" in said[0]
    train, validation = (read_manifest(directory).images(split) for split in ("train", "validation"))
    assert (train + validation, 1 <= validation <= 10) == (40, True)
    assert _prepared(source, tmp_path / "cache") == (directory, [])
    assert _prepared(directory, tmp_path / "cache") == (directory, [])
    write_files(str(source), {"cat/new.jpg": jpeg(1)})
    assert _prepared(source, tmp_path / "cache")[0] != directory


def test_evaluation_takes_every_image_of_a_source_without_splits(tmp_path: Path) -> None:
    source = _folder(tmp_path / "in", _many(40))
    to_train, _ = _prepared(source, tmp_path / "cache")
    for_evaluation, _ = _prepared(source, tmp_path / "cache", FOR_EVALUATION)
    assert _prepared(source, tmp_path / "cache", FOR_EVALUATION) == (for_evaluation, [])
    assert _contents(for_evaluation) == Counter(("validation", name[:3], image) for name, image in _many(40).items())
    assert read_manifest(for_evaluation).classes == read_manifest(to_train).classes
    with_splits, _ = _prepared(_folder(tmp_path / "splits"), tmp_path / "cache", FOR_EVALUATION)
    assert _contents(with_splits) == Counter((m.split, m.class_name, m.image) for m in made())


def test_a_source_behind_a_url_is_prepared_into_the_cache(tmp_path: Path) -> None:
    write_files(f"memory://{tmp_path}/set", folder_files())
    directory, _ = _prepared(f"memory://{tmp_path}/set", tmp_path / "cache")
    assert read_manifest(directory).images("train") == 24


@pytest.mark.parametrize("text", ['{"name": "an app"}', "[1, 2]", "no JSON", ""])
def test_a_source_with_the_manifest_of_another_program_is_no_prepared_directory(tmp_path: Path, text: str) -> None:
    source = _folder(tmp_path / "in", folder_files() | {MANIFEST: text.encode()})
    directory, _ = _prepared(source, tmp_path / "cache")
    assert _contents(directory) == Counter((m.split, m.class_name, m.image) for m in made())
    (directory / MANIFEST).write_text((directory / MANIFEST).read_text()[:-9])
    with pytest.raises(UserError, match=f"{MANIFEST} is damaged"):
        _prepared(directory, tmp_path / "cache")


def test_an_unfinished_directory_is_not_prepared_again_as_a_source(tmp_path: Path) -> None:
    (tmp_path / WORK).mkdir()
    with pytest.raises(UserError, match="is unfinished"):
        _prepared(tmp_path, tmp_path / "cache")


def test_a_store_that_fails_ends_the_run_instead_of_losing_images(tmp_path: Path) -> None:
    write_files(f"memory://{tmp_path}/set", _many(200))

    def fail(stage: str, done: int, total: int) -> None:
        memory = fsspec.filesystem("memory")
        if memory.exists(f"{tmp_path}/set"):
            memory.rm(f"{tmp_path}/set", recursive=True)

    with pytest.raises(UserError, match="run the same podium prepare again, and it resumes"):
        prepare(f"memory://{tmp_path}/set", tmp_path / "out", PrepareOptions(workers=1), progress=fail)
    assert not (tmp_path / "out" / MANIFEST).exists()


def test_the_command_line_says_what_was_done(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    source = str(_folder(tmp_path / "in", _spoiled()))
    report = show_preparation(Prepare(source=source, out=str(tmp_path / "out")), console)
    assert isinstance(report, Report)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "24 train + 6 validation images of 3 classes (folder)" in text
    assert "6 left out, listed in report.json; first, extra/cat/1.jpg: outside the split folders" in text


def test_progress_counts_every_image_once(tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    prepare(_folder(tmp_path / "in", _many(130)), tmp_path / "out", progress=lambda *step: steps.append(step))
    done = np.array([done for _, done, _ in steps])
    assert steps[-1] == ("writing images", 130, 130)
    assert (np.diff(done) >= 0).all()


def test_the_manifest_is_the_last_file_and_the_report_stands_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the two must leave an unfinished directory, not a finished one without its report."""
    written, rename = [], os.rename

    def renamed(before: Path, after: Path) -> None:
        written.append(Path(after).name)
        rename(before, after)

    monkeypatch.setattr(os, "rename", renamed)
    prepare(_folder(tmp_path / "in", folder_files()), tmp_path / "out")
    assert written[-2:] == ["report.json", "manifest.json"]
