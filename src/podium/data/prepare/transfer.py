"""Moves images from where a scan found them into shards, on every core: reads, checks, re-encodes where needed,
writes, and notes each finished shard in the journal. Threads do the work: reading, hashing and Pillow's codecs
release the GIL, and threads, unlike worker processes, end with a killed parent."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa

from podium.data.dataset.jpeg import BadImage, trainable_jpeg
from podium.data.dataset.seek import build_index
from podium.data.dataset.shards import Row, ShardWriter
from podium.data.decode import DecodeError
from podium.data.prepare.journal import Journal, LeftOut, ShardRecord
from podium.data.prepare.layout import ShardTask
from podium.errors import UserError
from podium.host.files import reporting

_REPORT_EVERY = 50  # images
_ROWS_AT_ONCE = 1000
_NEEDED = ["path", "offset", "bytes", "name", "label"]
_IMAGE_BYTES_MAX = 512 * 2**20  # more than the largest image in pixels takes as PNG


class Transfer:
    """`rows` is the table of the sources with the column `label`; `read` gives the bytes of a row; `check`, where
    given, looks at every JPEG that is kept as it is, and its DecodeError is the reason to leave it out."""

    def __init__(
        self,
        journal: Journal,
        rows: pa.Table,
        read: Callable[[dict[str, Any]], bytes],
        *,
        check: Callable[[bytes], object] | None,
        strict: bool,
        progress: Callable[[int, int], None],
    ) -> None:
        self._journal, self._rows, self._read = journal, rows, read
        self._check, self._strict, self._progress = check, strict, progress
        self._done, self._lock, self._stop = 0, threading.Lock(), threading.Event()

    def run(self, tasks: Sequence[ShardTask], workers: int) -> list[ShardRecord]:
        """The record of each shard; the first failure stops all workers, and is raised."""
        with ThreadPoolExecutor(workers, thread_name_prefix="prepare") as pool:
            futures = [pool.submit(self._shard, task) for task in tasks]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                failed = [future for future in futures if future.done() and future.exception()]
            finally:  # also when interrupted from the keyboard
                self._stop.set()
        for future in failed:
            future.result()
        return [future.result() for future in futures]

    def _shard(self, task: ShardTask) -> ShardRecord:
        record = self._journal.recall(task.file)
        if record is None:
            record = self._write(task)
            self._journal.record(record)
        else:
            self._count(len(task.rows))
        return record

    def _write(self, task: ShardTask) -> ShardRecord:
        reencoded, left_out = 0, []
        with ShardWriter.open(self._journal.directory / task.file) as writer:
            for place, row in enumerate(self._listed(task.rows), start=1):
                if self._stop.is_set():
                    raise UserError("stopped; run the same podium prepare again, and it resumes")
                try:
                    reencoded += self._store(row, writer)
                except BadImage as bad:
                    left_out.append(LeftOut(row["name"], task.split, str(bad)))
                    if self._strict:
                        raise unusable(left_out) from bad
                if place % _REPORT_EVERY == 0:
                    self._count(_REPORT_EVERY)
        self._count(len(task.rows) % _REPORT_EVERY)
        return ShardRecord(writer.shard, reencoded, tuple(left_out))

    def _store(self, row: dict[str, Any], writer: ShardWriter) -> bool:
        """Puts one image into a shard, with its seek index; says whether it was re-encoded."""
        found = trainable_jpeg(self._read(row), self._check)
        try:
            index = build_index(found.jpeg, found.width, found.height)
        except DecodeError as error:
            raise BadImage(f"does not decode: {error}") from error
        writer.add(Row(found.jpeg, row["label"], found.width, found.height, row["name"], index))
        return found.reencoded

    def _listed(self, rows: np.ndarray) -> Iterator[dict[str, Any]]:
        """The rows of the table with these numbers; some at a time, since a Python object takes a kilobyte."""
        needed = self._rows.select(_NEEDED)
        for some in np.array_split(rows, -(-len(rows) // _ROWS_AT_ONCE)):
            taken = needed.take(some)
            # As text first: Arrow takes ten times as long to make a Python object of a code.
            paths = taken["path"].cast(pa.string()).to_pylist()
            others = [column.to_pylist() for column in taken.columns[1:]]
            yield from (dict(zip(_NEEDED, row, strict=True)) for row in zip(paths, *others, strict=True))

    def _count(self, images: int) -> None:
        with self._lock:
            self._done += images
            self._progress(self._done, len(self._rows))


def unusable(left_out: Sequence[LeftOut]) -> UserError:
    first, more = left_out[0], f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
    return UserError(f"{first.name} cannot be used: {first.reason}{more}; repair or remove it")


def read_image(row: dict[str, Any], *, archived: bool) -> bytes:
    path, offset, image_bytes = row["path"], row["offset"], row["bytes"]
    if image_bytes > _IMAGE_BYTES_MAX:
        raise BadImage(f"{image_bytes:,} bytes is over the limit of {_IMAGE_BYTES_MAX:,}")
    if "://" in path:
        try:
            system, name = fsspec.core.url_to_fs(path)
            return system.cat_file(name)
        except Exception as error:  # every store has errors of its own; a network's are no fault of the image
            raise UserError(
                f"{path} cannot be read ({error}); run the same podium prepare again, and it resumes"
            ) from error
    try:
        with open(path, "rb", buffering=0) as file:
            image = os.pread(file.fileno(), image_bytes, offset)
    except OSError as error:
        if not archived:
            raise BadImage(f"could not be read: {error.strerror}") from error
        # A lost archive is no fault of its images.
        with reporting(path, "put it back and run the same podium prepare again, and it resumes", action="read"):
            raise
    if len(image) != image_bytes:
        raise BadImage(f"{len(image)} of its {image_bytes} bytes are there: it changed while it was prepared")
    return image
