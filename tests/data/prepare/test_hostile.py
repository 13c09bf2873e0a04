"""Archives made to do harm: headers that lie, names that bite, and files changed at random. None hangs, fills the
memory or ends in a traceback; what is refused is named, and the rest is prepared."""

import io
import random
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from tests.support.hostile_tars import END, header, member
from tests.support.made_sources import jpeg, tar_bytes
from tests.support.mutated import KINDS, mutant, read, sound

from podium.data.prepare import prepare
from podium.data.prepare.sources import scan_archive
from podium.data.prepare.sources.find import SourceFile
from podium.data.prepare.sources.tar_headers import headers, pax_records
from podium.errors import UserError

GOOD = jpeg(1)
REST = member(b"cat/good.jpg", GOOD) + member(b"dog/good.jpg", GOOD) + END


def scanned(folder: Path, content: bytes, name: str = "a.tar"):
    """({name: reason} of what is refused, names of the rest)."""
    (folder / name).write_bytes(content)
    rows = scan_archive(SourceFile(str(folder / name), name, len(content), ""), folder, "0").rows.to_pylist()
    refused = {row["name"]: row["refused"] for row in rows if row["refused"]}
    return refused, [row["name"] for row in rows if not row["refused"]]


BOTH = ["cat/good.jpg", "dog/good.jpg"]


@pytest.mark.parametrize("size", [-512, -1024, -1, -(2**60)])
def test_a_negative_size_is_refused_by_name_and_the_rest_is_read(tmp_path, size):
    refused, rest = scanned(tmp_path, header(b"cat/bad.jpg", size) + REST)
    assert refused == {"cat/bad.jpg": f"its size is {size} bytes"}
    assert rest == BOTH


@pytest.mark.parametrize("kind", [b"L", b"K", b"x"])
def test_a_description_of_40_gib_takes_no_memory(tmp_path, kind):
    content = header(b"././@LongLink", 40 * 2**30, kind) + REST
    tracemalloc.start()
    refused, rest = scanned(tmp_path, content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused == {"././@LongLink": "a description of 42,949,672,960 bytes, more than 1,048,576"}
    assert rest == BOTH
    assert peak < 8 * 2**20


def test_a_member_larger_than_the_archive_is_refused_and_the_rest_is_read(tmp_path):
    refused, rest = scanned(tmp_path, header(b"cat/bad.jpg", 2**62) + REST)
    assert "more than the whole archive has" in refused["cat/bad.jpg"]
    assert rest == BOTH


@pytest.mark.parametrize("size", [b"-512", b"99999999999999999999999", b"1e3", b" 7"])
def test_a_size_in_a_pax_header_is_believed_no_more(tmp_path, size):
    record = b" size=" + size + b"\n"
    length = len(record) + 2
    content = member(b"x", b"%d" % length + record, b"x") + header(b"cat/bad.jpg", 0) + REST
    refused, rest = scanned(tmp_path, content)
    assert list(refused) == ["cat/bad.jpg"]
    assert rest == BOTH


@pytest.mark.parametrize("content", [b"1" * 2**20, b"0 a=b\n", b"5 a=b", b"999 a=b\n", b"-1 a=b\n", b"6 ab c\n"])
def test_pax_records_that_lie_are_refused_at_once(content):
    with pytest.raises(ValueError, match="a pax header that is damaged at byte 0"):
        pax_records(content)


def test_an_archive_of_headers_alone_comes_to_its_end(tmp_path):
    content = header(b"a", 0, b"L") * 2000 + header(b"s", 0, b"S") * 50 + REST
    assert scanned(tmp_path, content)[1] == BOTH


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_lie_where_tarfile_finds_them(form):
    """Long and non-ASCII names, folders, links, empty and large files, in each format."""
    out = io.BytesIO()
    names = ["a.jpg", "deep/" * 18 + "b.jpg", "große/é.jpg", "x" * (99 if form == tarfile.USTAR_FORMAT else 300)]
    with tarfile.TarFile(fileobj=out, mode="w", format=form) as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = number * 700
            tar.addfile(info, io.BytesIO(bytes(info.size)))
            link = tarfile.TarInfo(f"link-{number}")
            link.type, link.linkname = tarfile.SYMTYPE, name
            tar.addfile(link)
    with tarfile.TarFile(fileobj=io.BytesIO(out.getvalue())) as tar:
        expected = [(m.name + "/" * m.isdir(), m.offset_data, m.size, m.isreg(), m.issym(), m.isdir()) for m in tar]
    found = [(h.name, h.offset, h.bytes, h.regular, h.link, h.folder) for h in headers(io.BytesIO(out.getvalue()))]
    assert found == expected


def test_a_second_sample_of_a_key_is_named_and_the_first_used(tmp_path):
    content = b"".join(
        member(name, data)
        for name, data in [(b"7.jpg", GOOD), (b"7.cls", b"1"), (b"7.jpg", jpeg(2)), (b"7.cls", b"2"), (b"8.jpg", GOOD)]
    )
    (tmp_path / "a.tar").write_bytes(content + END)
    rows = scan_archive(SourceFile(str(tmp_path / "a.tar"), "a.tar", 0, ""), tmp_path, "0").rows.to_pylist()
    reasons = [(row["name"], row["refused"]) for row in rows if row["refused"]]
    second = "of the sample 7: the first is used"
    assert reasons == [
        ("7.jpg", f"a second jpg {second}"),
        ("7.cls", f"a second cls {second}"),
        ("8.jpg", "no label beside the image"),
    ]
    assert [row["number"] for row in rows if not row["refused"]] == [1]


@pytest.mark.parametrize("label", [b"9" * 24, b"9" * 5000, b"1000000", b"-3"])
def test_an_absurd_class_number_costs_its_image_and_not_the_preparation(tmp_path, label):
    files = {"a.jpg": GOOD, "a.cls": label, "b.jpg": jpeg(2), "b.cls": b"0"}
    (tmp_path / "a.tar").write_bytes(tar_bytes(files))
    report = prepare(tmp_path / "a.tar", tmp_path / "out")
    assert [item.name for item in report.left_out] == ["a.jpg"]
    assert report.images == {"train": 1}


def test_two_layouts_at_once_are_told_apart_by_name(tmp_path):
    for name in ("train/cat/z.jpg", "cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(GOOD)
    told = r"1 images lie in split folders \(train/cat/z\.jpg for one\) and 3 beside them \(cat/1\.jpg for one\); move"
    with pytest.raises(UserError, match=told):
        prepare(tmp_path / "in", tmp_path / "out")


def test_control_characters_in_names_are_stored_as_escapes(tmp_path):
    refused, rest = scanned(tmp_path, member(b"cat/\x1b]0;own\x07.jpg", GOOD) + member(b"../\x1b[2J.jpg", GOOD) + REST)
    assert rest[0] == "cat/\\x1b]0;own\\x07.jpg"
    assert list(refused) == ["../\\x1b[2J.jpg"]


@pytest.mark.parametrize("kind", KINDS)
def test_files_changed_at_random_end_in_rows_or_in_one_line(tmp_path, kind):
    content, rng, refused = sound(kind, tmp_path), random.Random(4), set()
    read(kind, content, tmp_path / "sound")
    for _ in range(100):
        try:
            read(kind, mutant(kind, content, rng), tmp_path / "mutant")
        except UserError as error:
            refused.add(str(error))
    assert not any("\n" in line for line in refused)


@pytest.mark.parametrize("number", [3659, 4849])  # a width of integers that Arrow does not know is no ValueError
def test_mutants_of_shards_that_once_ended_in_a_traceback(tmp_path, number):
    changed = mutant("arrow", sound("arrow", tmp_path), random.Random(f"0/arrow/{number}"))
    with pytest.raises(UserError, match=r"train\.arrow is damaged"):
        read("arrow", changed, tmp_path / "mutant")
