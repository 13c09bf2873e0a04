"""Files that are whole or absent, their hashes, and a disk that says no: each told in one line, wherever it happens."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from podium.errors import UserError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What only writing fails with, never the reading of a source."""

_MAKE_ROOM = "make room or make it writable, then run the same command again"


def write_atomic(path: Path, text: str) -> None:
    """Makes `path` hold `text`; a crash at any moment leaves the old file or the new one."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The path of a file to write, which becomes `path` at the end of the block. Its data, then its name, are on the
    disk when the block has ended; an exception leaves `path` as it was, and nothing beside it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _sync(temporary)  # before the name: else a power cut may leave a name without data
        temporary.rename(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def reporting(path: str | Path, advice: str = _MAKE_ROOM, *, action: str = "written") -> Iterator[None]:
    """Turns an OSError of the block into a UserError: "PATH could not be written: No space left on device; ADVICE"."""
    try:
        yield
    except BrokenPipeError:  # of a terminal that went away: files have no pipes
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f"{path} could not be {action}: {reason}; {advice}") from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
