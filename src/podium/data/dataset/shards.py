"""Prepared images on disk: memory-mapped Arrow IPC files, named by a manifest. `prepare` and the demo write
them through `ShardWriter`; training opens one split as an `ImageSet`, whose images are read-only views of the
mapped files. Nothing here decodes a JPEG or decides an order.

    DIR/manifest.json
    DIR/train-00000-of-00004.arrow   columns: image, label, width, height, name
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from podium.data.dataset.jpeg import jpeg_header
from podium.data.dataset.manifest import Manifest, Shard, damaged, read_manifest
from podium.errors import UserError
from podium.host.files import replacing, sha256

_SCHEMA = pa.schema(
    [
        ("image", pa.large_binary()),
        ("label", pa.int32()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("name", pa.string()),
    ]
)
_SHARD_BYTES = 256 * 2**20
_SHARDS_LEAST = 8  # a small set still keeps several cores at work …
_SHARD_IMAGES_LEAST = 1000  # … unless it is tiny
_BATCH_BYTES = 32 * 2**20  # of images per record batch: what a writer holds in memory


def shard_count(images: int, image_bytes: int) -> int:
    """A function of the data alone, so that a preparation can be resumed with other cores."""
    for_size = -(-image_bytes // _SHARD_BYTES)
    for_cores = min(_SHARDS_LEAST, -(-images // _SHARD_IMAGES_LEAST))
    return max(1, for_size, for_cores)


def shard_name(split: str, index: int, count: int) -> str:
    return f"{split}-{index:05d}-of-{count:05d}.arrow"


class ShardWriter:
    """Collects the rows of one shard and writes them in bounded memory."""

    shard: Shard
    """Known at the end of `open`'s block, when the file is whole and on the disk and has its name."""

    def __init__(self, file: pa.ipc.RecordBatchFileWriter) -> None:
        self._file = file
        self._rows: list[tuple[bytes, int, int, int, str]] = []
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
            writer.shard = Shard(path.name, writer._written, temporary.stat().st_size, sha256(temporary))

    def add(self, image: bytes, label: int, width: int, height: int, name: str) -> None:
        self._rows.append((image, label, width, height, name))
        self._rows_bytes += len(image)
        if self._rows_bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        images, labels, widths, heights, names = zip(*self._rows, strict=True)
        ends = np.cumsum([0, *map(len, images)], dtype=np.int64)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(images))]
        columns = [
            pa.Array.from_buffers(pa.large_binary(), len(images), buffers),
            *(pa.array(np.array(column, dtype=np.int32)) for column in (labels, widths, heights)),
            pa.array(names, pa.string()),
        ]
        self._file.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self._written += len(images)
        self._rows, self._rows_bytes = [], 0


def write_split(directory: str | Path, split: str, images: Iterable[tuple[bytes, int, str]], count: int) -> list[Shard]:
    """The shards of one split from `count` images (JPEG, label, name), in order: for data that is made, not
    found."""
    shards_wanted, rows, shards = shard_count(count, 0), iter(images), []
    for index in range(shards_wanted):
        first, last = (count * i // shards_wanted for i in (index, index + 1))
        with ShardWriter.open(Path(directory) / shard_name(split, index, shards_wanted)) as writer:
            for jpeg, label, name in islice(rows, last - first):
                header = jpeg_header(jpeg)
                writer.add(jpeg, label, header.width, header.height, name)
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
        self.directory, self.split = directory, split
        self.classes: tuple[str, ...] = manifest.classes
        self.content_hash: str = manifest.content_hash
        self.shards: tuple[Shard, ...] = manifest.splits[split]
        batches = [batch for shard in self.shards for batch in _open_shard(directory, shard)]
        self._first: list[int] = np.cumsum([0, *(batch.num_rows for batch in batches)]).tolist()
        self._ends = [np.frombuffer(batch.column(0).buffers()[1], np.int64) for batch in batches]
        self._bytes = [np.frombuffer(batch.column(0).buffers()[2], np.uint8) for batch in batches]
        self._names = [batch.column(4) for batch in batches]
        self.labels: np.ndarray = _int32_column(batches, 1)
        """int32 [n]"""
        self.sizes: np.ndarray = np.stack([_int32_column(batches, 2), _int32_column(batches, 3)], axis=1)
        """int32 [n, 2]: width, height in pixels"""
        if len(self) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise damaged(directory, f"labels outside its {len(self.classes)} classes")

    @classmethod
    def open(cls, directory: str | Path, split: str) -> "ImageSet":
        manifest = read_manifest(directory)
        if split not in manifest.splits:
            has = ", ".join(sorted(manifest.splits))
            raise UserError(
                f"{directory} has no split {split!r}, only {has}; prepare it again, for example by "
                "podium prepare SOURCE NEW_DIRECTORY --validation-share 0.1"
            )
        return cls(Path(directory), manifest, split)

    def __len__(self) -> int:
        return self._first[-1]

    def image(self, index: int) -> np.ndarray:
        """The JPEG file as stored: uint8 [bytes], read-only, no copy."""
        batch, row = self._locate(index)
        ends = self._ends[batch]
        return self._bytes[batch][ends[row] : ends[row + 1]]

    def name(self, index: int) -> str:
        batch, row = self._locate(index)
        return self._names[batch][row].as_py()

    def _locate(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"image {index} of {len(self)}")
        batch = bisect_right(self._first, index) - 1
        return batch, index - self._first[batch]


def _open_shard(directory: Path, shard: Shard) -> list[pa.RecordBatch]:
    path = directory / shard.file
    try:
        if path.stat().st_size != shard.bytes:
            raise ValueError(f"{path.stat().st_size} bytes, the manifest says {shard.bytes}")
        # The batches keep the mapping alive; the file handle can go: a thousand shards would use too many.
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            if not reader.schema.equals(_SCHEMA):
                raise ValueError(f"its columns are {', '.join(reader.schema.names)}")
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        for batch in batches:
            batch.validate()
        images = sum(batch.num_rows for batch in batches)
        if images != shard.images:
            raise ValueError(f"{images} images, the manifest says {shard.images}")
        return batches
    except (ValueError, OSError) as error:  # pa.ArrowInvalid is a ValueError
        raise damaged(path, error) from error


def _int32_column(batches: list[pa.RecordBatch], column: int) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int32), *(batch.column(column).to_numpy() for batch in batches)])


def verify(directory: str | Path) -> Manifest:
    """Reads every stored byte and compares it with the manifest's hashes."""
    manifest = read_manifest(directory)
    for shard in (shard for shards in manifest.splits.values() for shard in shards):
        path = Path(directory) / shard.file
        try:
            unchanged = sha256(path) == shard.sha256
        except OSError as error:
            raise damaged(path, error) from error
        if not unchanged:
            raise damaged(path, "its hash is not the manifest's")
    return manifest
