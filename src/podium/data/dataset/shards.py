"""Prepared images on disk: memory-mapped Arrow IPC files, named by a manifest. `prepare` and the demo write
them through `ShardWriter`; training opens one split as an `ImageSet`, whose images are read-only views of the
mapped files. Nothing here decodes a JPEG or decides an order.

    DIR/manifest.json
    DIR/train-00000-of-00004.arrow   columns: image, label, width, height, name, index, crc32
"""

import copy
import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from podium.data.dataset.checksums import data_ranges, frame_crc32, image_crc32
from podium.data.dataset.column import ByteColumn
from podium.data.dataset.jpeg import jpeg_header
from podium.data.dataset.manifest import FAMILY, Manifest, Shard, read_manifest
from podium.data.dataset.open_shard import OpenShard, open_shard
from podium.data.dataset.seek import build_index
from podium.errors import UserError
from podium.host.files import replacing, sha256

_SCHEMA = pa.schema(
    [
        ("image", pa.large_binary()),
        ("label", pa.int32()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("name", pa.string()),
        ("index", pa.binary()),  # the decoder's seek index, null where there is none
        ("crc32", pa.uint32()),  # of image and index
    ]
)
_COLUMNS = {f"{FAMILY}1": 5, f"{FAMILY}2": 6}  # the first of them, in earlier formats
_SHARD_BYTES = 256 * 2**20
_SHARDS_LEAST = 8  # a small set still keeps several cores at work …
_SHARD_IMAGES_LEAST = 125  # … unless it is tiny
_BATCH_BYTES = 32 * 2**20  # of images per record batch: what a writer holds in memory


def shard_count(images: int, image_bytes: int) -> int:
    """A function of the data alone, so that a preparation can be resumed with other cores."""
    for_size = -(-image_bytes // _SHARD_BYTES)
    for_cores = min(_SHARDS_LEAST, -(-images // _SHARD_IMAGES_LEAST))
    return max(1, for_size, for_cores)


def shard_name(split: str, index: int, count: int) -> str:
    return f"{split}-{index:05d}-of-{count:05d}.arrow"


@dataclass(frozen=True, slots=True)
class Row:
    """What is stored of an image."""

    image: bytes
    label: int
    width: int
    height: int
    name: str
    index: bytes | None


class ShardWriter:
    """Collects the rows of one shard and writes them in bounded memory."""

    shard: Shard
    """Known at the end of `open`'s block, when the file is whole and on the disk and has its name."""

    def __init__(self, file: pa.ipc.RecordBatchFileWriter) -> None:
        self._file, self._content = file, hashlib.sha256()
        self._rows: list[Row] = []
        self._rows_bytes = self._written = 0

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator["ShardWriter"]:
        """A writer of `path`; an exception in the block leaves nothing behind."""
        with replacing(path) as temporary:
            with pa.ipc.new_file(str(temporary), _SCHEMA) as file:
                writer = cls(file)
                yield writer
                writer._flush()
            data = data_ranges(temporary)
            writer.shard = Shard(
                file=path.name,
                images=writer._written,
                bytes=temporary.stat().st_size,
                sha256=sha256(temporary),
                content_sha256=writer._content.hexdigest(),
                data=data,
                frame_crc32=frame_crc32(temporary, data),
            )

    def add(self, row: Row) -> None:
        self._rows.append(row)
        self._rows_bytes += len(row.image)
        if self._rows_bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        rows, self._rows, self._rows_bytes = self._rows, [], 0
        ends = np.cumsum([0, *(len(row.image) for row in rows)], dtype=np.int64)
        images = b"".join(row.image for row in rows)
        numbers = np.array([(row.label, row.width, row.height) for row in rows], np.int32).T.copy()
        names = [row.name for row in rows]
        columns = [
            pa.Array.from_buffers(pa.large_binary(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(images)]),
            *map(pa.array, numbers),
            pa.array(names, pa.string()),
            pa.array([row.index for row in rows], pa.binary()),
            pa.array([image_crc32(row.image, row.index) for row in rows], pa.uint32()),
        ]
        self._file.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        parts = (images, ends.tobytes(), numbers.tobytes(), json.dumps(names).encode())
        for part in parts:
            self._content.update(part)
        self._written += len(rows)


def write_split(
    directory: str | Path, split: str, images: Iterable[tuple[bytes, int, str]], *, count: int
) -> list[Shard]:
    """The shards of one split from `count` images (JPEG, label, name), in order: for data that is made, not
    found."""
    shards_wanted, rows, shards = shard_count(count, 0), iter(images), []
    for number in range(shards_wanted):
        first, last = (count * i // shards_wanted for i in (number, number + 1))
        with ShardWriter.open(Path(directory) / shard_name(split, number, shards_wanted)) as writer:
            for jpeg, label, name in islice(rows, last - first):
                header = jpeg_header(jpeg)
                index = build_index(jpeg, header.width, header.height)
                writer.add(Row(jpeg, label, header.width, header.height, name, index))
        shards.append(writer.shard)
    return shards


class ImageSet:
    """One split, open for reading from any number of threads. Opening reads labels and sizes, no images.

    >>> from podium import ImageSet
    >>> images = ImageSet.open("prepared", "train")
    >>> len(images), images.classes
    (96, ('red', 'green', 'blue'))
    >>> images.name(4), images.classes[images.labels[4]], bytes(images.image(4)[:2])  # a JPEG file, as it was
    ('1/4.jpg', 'green', b'\\xff\\xd8')
    """

    def __init__(self, directory: Path, manifest: Manifest, split: str) -> None:
        """Opens no shard: each is opened when one of its images is first asked for."""
        self.directory, self.split = directory, split
        self.classes: tuple[str, ...] = manifest.classes
        self.content_hash: str = manifest.content_hash
        self.shards: tuple[Shard, ...] = manifest.splits[split]
        self._schema = pa.schema(list(_SCHEMA)[: _COLUMNS.get(manifest.format)])
        self._first: np.ndarray = np.cumsum([0, *(shard.images for shard in self.shards)])
        self._is_open, self._opening = np.zeros(len(self.shards), np.bool_), threading.Lock()
        count = len(self)
        self.images = ByteColumn(count)
        """The JPEG files as stored, of images that were asked for."""
        self.indexes = ByteColumn(count)
        """The seek index of each; empty where there is none."""
        self._labels, self._sizes = np.zeros(count, np.int32), np.zeros((count, 2), np.int32)
        self._names: dict[int, pa.ChunkedArray] = {}
        self._crc32 = np.zeros(count, np.uint32) if "crc32" in self._schema.names else None
        self._looked_at, self._damaged = np.zeros((2, count), np.bool_)

    @classmethod
    def open(cls, directory: str | Path, split: str, *, whole: bool = True) -> "ImageSet":
        """With all its shards, or, if not `whole`, with none yet."""
        manifest = read_manifest(directory)
        if split not in manifest.splits:
            has = ", ".join(sorted(manifest.splits))
            raise UserError(
                f"{directory} has no split {split!r}, only {has}; prepare it again, for example by "
                "podium prepare SOURCE NEW_DIRECTORY --validation-share 0.1"
            )
        images = cls(Path(directory), manifest, split)
        images.need_ranges([slice(0, len(images))] if whole else [])
        return images

    def need(self, rows: np.ndarray) -> None:
        """Opens the shards of these images, as far as they are not open: before `images` and `indexes` of them."""
        if not self._is_open.all():
            self._open(np.unique(self._shards_of(rows)))

    def need_ranges(self, ranges: Iterable[slice]) -> None:
        """Opens the shards of [first, last) images each."""
        ends = [self._shards_of(np.array([part.start, part.stop - 1])) for part in ranges if part.start < part.stop]
        self._open(np.unique(np.concatenate([np.zeros(0, np.int64), *(np.arange(a, b + 1) for a, b in ends)])))

    def open_files(self) -> list[str]:
        return [self.shards[number].file for number in np.flatnonzero(self._is_open)]

    def _shards_of(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._first, rows, side="right") - 1

    def _open(self, numbers: np.ndarray) -> None:
        if self._is_open[numbers].all():
            return
        with self._opening, ThreadPoolExecutor() as pool:  # checksums: a second for 14 million images on one core
            closed = numbers[~self._is_open[numbers]].tolist()
            for number, opened in zip(closed, pool.map(self._opened, closed), strict=True):
                self._take(number, opened)

    def _opened(self, number: int) -> OpenShard:
        shard = self.shards[number]
        return open_shard(self.directory / shard.file, shard, self._schema, classes=len(self.classes))

    def _take(self, number: int, opened: OpenShard) -> None:
        first, last = self._first[number : number + 2].tolist()
        self.images.fill(first, opened.images)
        self.indexes.fill(first, opened.indexes)
        self._labels[first:last], self._sizes[first:last] = opened.labels, opened.sizes
        if self._crc32 is not None and opened.crc32 is not None:
            self._crc32[first:last] = opened.crc32
        self._names[number] = opened.names
        self._is_open[number] = True  # last: other threads ask

    @property
    def labels(self) -> np.ndarray:
        """int32 [n], of all images: opens every shard."""
        self.need_ranges([slice(0, len(self))])
        return self._labels

    @property
    def sizes(self) -> np.ndarray:
        """int32 [n, 2]: width, height in pixels, of all images: opens every shard."""
        self.need_ranges([slice(0, len(self))])
        return self._sizes

    def labels_of(self, rows: np.ndarray) -> np.ndarray:
        self.need(rows)
        return self._labels[rows]

    def sizes_of(self, rows: np.ndarray) -> np.ndarray:
        self.need(rows)
        return self._sizes[rows]

    def with_classes(self, classes: tuple[str, ...]) -> "ImageSet":
        """The same images with the numbers of `classes`, which has all of this set's and perhaps more."""
        unknown = [name for name in self.classes if name not in classes]
        if unknown:
            shown = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
            raise UserError(
                f"{self.directory} has {len(unknown)} classes that the run does not know ({shown}); it knows "
                f"{', '.join(classes[:3])}{', …' if len(classes) > 3 else ''}: rename or leave out the others"
            )
        labels, same = self.labels, copy.copy(self)
        same.classes = classes
        same._labels = np.array([classes.index(name) for name in self.classes], np.int32)[labels]
        return same

    def __len__(self) -> int:
        return int(self._first[-1])

    def image(self, index: int) -> np.ndarray:
        """The JPEG file as stored: uint8 [bytes], read-only, no copy."""
        self._shard_of(index)
        return self.images[index]

    def damaged(self, index: int) -> bool:
        """Whether the image or its seek index has changed since it was written. Looks once, when first asked; earlier
        formats cannot tell."""
        self.need(np.array([index]))
        if not self._looked_at[index] and self._crc32 is not None:
            self._damaged[index] = image_crc32(self.images[index], self.indexes[index]) != self._crc32[index]
            self._looked_at[index] = True  # last: other threads ask too
        return bool(self._damaged[index])

    def unchecked(self, indices: np.ndarray) -> np.ndarray:
        """Those that `damaged` would have to look at."""
        return indices[:0] if self._crc32 is None else indices[~self._looked_at[indices]]

    def known_damaged(self, indices: np.ndarray) -> np.ndarray:
        """bool [n]: which of them `damaged` has found so."""
        return self._damaged[indices]

    def name(self, index: int) -> str:
        number = self._shard_of(index)
        return self._names[number][index - int(self._first[number])].as_py()

    def _shard_of(self, index: int) -> int:
        """The number of the image's shard, which is then open."""
        if not 0 <= index < len(self):
            raise IndexError(f"image {index} of {len(self)}")
        row = np.array([index])
        self.need(row)
        return int(self._shards_of(row)[0])
