"""Files are whole or absent, and what the disk refuses is one line."""

import errno
import hashlib
import os
from pathlib import Path

import pytest
from tests.support.full_disk import full_disk

from podium.errors import UserError
from podium.host.files import replacing, reporting, sha256, write_atomic


def test_a_file_is_replaced_as_a_whole_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "é.json"
    write_atomic(path, "old")
    write_atomic(path, "new, ü")
    assert path.read_text(encoding="utf-8") == "new, ü"
    assert [file.name for file in tmp_path.iterdir()] == ["é.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "kept"
    write_atomic(path, "old")
    with full_disk(3), pytest.raises(OSError, match="File too large"):
        write_atomic(path, "too long")
    with pytest.raises(AssertionError), replacing(path) as temporary:
        assert temporary.write_text("half") == 5
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_data_reach_the_disk_before_the_name_and_the_name_before_the_end(tmp_path, monkeypatch):
    """A power cut cannot be had in a test; the order of the calls that guard against it can."""
    calls, sync, rename = [], os.fsync, os.rename

    def synced(handle):
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{handle}")))
        sync(handle)

    def renamed(before, after, **more):
        calls.append(("rename", str(after)))
        rename(before, after, **more)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    with replacing(tmp_path / "a") as temporary:
        temporary.write_text("data")
    assert calls == [("fsync", str(temporary)), ("rename", str(tmp_path / "a")), ("fsync", str(tmp_path))]


def test_a_hash_is_that_of_the_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 100_000)
    assert sha256(tmp_path / "a") == hashlib.sha256(b"abc" * 100_000).hexdigest()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "in the words of a library"), "out could not be written: No space left on device; make"),
        (OSError("Arrow says so"), "out could not be written: Arrow says so; make room or make it writable, then run"),
        (PermissionError(errno.EACCES, "x"), "out could not be written: Permission denied; make room"),
    ],
)
def test_what_the_disk_refuses_is_one_line(error, told):
    with pytest.raises(UserError, match=told) as line, reporting(Path("out")):
        raise error
    assert "\n" not in str(line.value)


def test_action_and_advice_are_the_callers():
    with (
        pytest.raises(UserError, match=r"^a\.jpg could not be read: No such file or directory; give another$"),
        reporting("a.jpg", "give another", action="read"),
    ):
        Path("/nowhere/a.jpg").read_bytes()


@pytest.mark.parametrize("error", [BrokenPipeError(errno.EPIPE, "a pager has ended"), ValueError("a mistake")])
def test_what_is_not_the_disks_passes(error):
    with pytest.raises(type(error)), reporting(Path("out")):
        raise error
