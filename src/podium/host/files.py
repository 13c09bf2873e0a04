"""Files that are whole or absent, and a disk that says no told in one line."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from podium.errors import UserError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What only writing fails with, never the reading of a source."""


def write_atomic(path: Path, text: str) -> None:
    temporary = temporary_name(path)
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
    publish(temporary, path)


def temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def publish(temporary: Path, path: Path) -> None:
    """Gives a written file its name; data, then name, are on the disk when this returns."""
    _sync(temporary)
    temporary.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Tells of a disk that is full, or lost, in one line."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path} could not be written: {error.strerror}; make room or make it writable, then run the same command "
            f"again"
        ) from error
