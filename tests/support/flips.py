"""One changed byte in one file, put back afterwards; and whether those who read the file notice."""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Flip:
    file: Path
    at: int
    mask: int


@contextlib.contextmanager
def flipped(flip: Flip) -> Iterator[None]:
    """Writes in place, so that a file keeps its inode and its size."""
    with flip.file.open("r+b") as file:
        file.seek(flip.at)
        before = file.read(1)
        _put(flip, bytes([before[0] ^ flip.mask]))
        try:
            yield
        finally:
            _put(flip, before)


def _put(flip: Flip, byte: bytes) -> None:
    with flip.file.open("r+b") as file:
        file.seek(flip.at)
        file.write(byte)


def flips(directory: Path, count: int, seed: int) -> Iterator[Flip]:
    """`count` of them: every file as often as any other, at places and with masks drawn by `seed`."""
    rng = np.random.default_rng(seed)
    files = [file for file in sorted(directory.rglob("*")) if file.is_file() and file.stat().st_size]
    for number in range(count):
        file = files[number % len(files)]
        yield Flip(file, int(rng.integers(file.stat().st_size)), int(rng.integers(1, 256)))


def unnoticed(directory: Path, count: int, *, seed: int, changes: Callable[[Path], list[str]]) -> list[Flip]:
    """The flips for which `changes` names nothing, or not the file that has one."""
    silent = []
    for flip in flips(directory, count, seed):
        with flipped(flip):
            told = changes(directory)
        if not any(_names(line, flip.file, directory) for line in told):
            silent.append(flip)
    return silent


def _names(line: str, file: Path, directory: Path) -> bool:
    """A file by its name, or one of a checkpoint by the checkpoint."""
    first, *rest = file.relative_to(directory).parts
    return str(directory / Path(first, *rest[:1])) in line


def harmless(flip: Flip) -> bool:
    """Whether a file says the same with the flip: JSON that is only laid out differently, a time stamp that nobody
    reads, the text of files of which only the presence counts."""
    if flip.file.name in ("lock", "commit_success.txt"):
        return True
    before = _values(flip.file)
    with flipped(flip):
        return before is not None and before == _values(flip.file)


def _values(file: Path) -> object:
    try:
        if file.name == "metrics.jsonl":
            return [json.loads(line) for line in file.read_bytes().splitlines()]
        values = json.loads(file.read_bytes())
    except ValueError:
        return None
    return {**values, "commit_timestamp_nsecs": 0} if file.name == "_CHECKPOINT_METADATA" else values
