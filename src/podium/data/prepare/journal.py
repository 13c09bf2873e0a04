"""The work folder of an unfinished preparation, `OUT/.prepare`: the plan it
belongs to, and one record per finished shard, written after the shard itself. A killed preparation is resumed
from these; a finished one has none."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from podium.data.dataset.manifest import WORK, Shard, has_manifest
from podium.errors import UserError
from podium.host.files import reporting, write_atomic
from podium.host.sealed import unseal, write_sealed


@dataclass(frozen=True)
class LeftOut:
    name: str
    split: str | None
    reason: str


@dataclass(frozen=True)
class ShardRecord:
    shard: Shard
    reencoded: int
    left_out: tuple[LeftOut, ...]


class Journal:
    def __init__(self, directory: Path) -> None:
        self.directory, self.work = directory, directory / WORK

    @classmethod
    @contextmanager
    def claim(cls, directory: Path, plan: str, say: Callable[[str], None]) -> Iterator["Journal"]:
        """Waits for another process at work on the same directory; refuses a directory that holds something
        else."""
        journal = cls(directory)
        with reporting(directory, "choose a new directory", action="made"):
            directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY)
        try:
            _lock(handle, lambda: say(f"waiting for another process that prepares {directory}"))
            if not has_manifest(directory):
                journal._begin_or_resume(plan)
            yield journal
        finally:
            os.close(handle)  # and with it goes the lock, as it does when the process is killed

    def _begin_or_resume(self, plan: str) -> None:
        if not self.work.exists() and any(self.directory.iterdir()):
            raise UserError(f"{self.directory} holds other files; choose a new directory, or remove it")
        self.work.mkdir(exist_ok=True)
        kept = self.work / "plan"
        if kept.exists() and kept.read_bytes() != plan.encode():
            if any(self.work.glob("*.arrow.json")):
                changed = "an unfinished preparation of another source or with other options"
                raise UserError(f"{self.directory} holds {changed}; run that one again, or remove the directory")
            for scan in self.work.glob("[0-9]*"):  # no shard is lost: start over
                scan.unlink()
        write_atomic(kept, plan)
        for leftover in (*self.directory.glob(".*.tmp"), *self.work.glob(".*.tmp")):
            leftover.unlink()

    def record(self, record: ShardRecord) -> None:
        write_sealed(self._path(record.shard.file), asdict(record))

    def recall(self, shard_file: str) -> ShardRecord | None:
        """What is known of a shard, where it was finished and is still there. An earlier Podium's, and a record that
        cannot be read, count for nothing: the shard is then written again."""
        try:
            kept = unseal(self._path(shard_file).read_bytes(), required=True)
            shard, left_out = Shard(**kept["shard"]), tuple(LeftOut(**item) for item in kept["left_out"])
            if (self.directory / shard_file).stat().st_size != shard.bytes or shard.frame_crc32 is None:
                return None
            return ShardRecord(shard, kept["reencoded"], left_out)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _path(self, shard_file: str) -> Path:
        return self.work / f"{shard_file}.json"

    def close(self) -> None:
        if self.work.exists():
            shutil.rmtree(self.work)


def _lock(handle: int, wait: Callable[[], None]) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        wait()
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:  # some network file systems lock no directories: then nothing guards against a second process
        pass
