"""Opens one shard: its labels, sizes, names and the places of its images, held to their checksum. Reads no image."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from podium.data.dataset.checksums import frame_crc32
from podium.data.dataset.column import Strings
from podium.data.dataset.manifest import Shard, damaged


@dataclass(frozen=True)
class OpenShard:
    """The columns of a shard, of all its images."""

    images: Strings
    indexes: Strings
    labels: np.ndarray
    sizes: np.ndarray
    names: pa.ChunkedArray
    crc32: np.ndarray | None


def open_shard(path: Path, shard: Shard, schema: pa.Schema, *, classes: int) -> OpenShard:
    try:
        if path.stat().st_size != shard.bytes:
            raise ValueError(f"{path.stat().st_size} bytes, the manifest says {shard.bytes}")
        if shard.frame_crc32 is not None and frame_crc32(path, shard.data) != shard.frame_crc32:
            raise ValueError("labels, names or places of images do not match their checksum")
        batches = _batches(path, schema)
        images = sum(batch.num_rows for batch in batches)
        if images != shard.images:
            raise ValueError(f"{images} images, the manifest says {shard.images}")
        opened = _columns(batches, schema)
        if images and not 0 <= opened.labels.min() <= opened.labels.max() < classes:
            raise ValueError(f"labels outside its {classes} classes")
        return opened
    except (ValueError, OSError, pa.ArrowException) as error:  # not every error of Arrow is a ValueError
        raise damaged(path, str(error).partition("\n")[0]) from error


def _batches(path: Path, schema: pa.Schema) -> list[pa.RecordBatch]:
    # The batches keep the mapping alive; the file handle can go: a thousand shards would use too many.
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        if not reader.schema.equals(schema):
            raise ValueError(f"its columns are {', '.join(reader.schema.names)}")
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    for batch in batches:
        batch.validate()
        batch.column("name").validate(full=True)  # Strings looks at places of bytes
    return batches


def _columns(batches: list[pa.RecordBatch], schema: pa.Schema) -> OpenShard:
    return OpenShard(
        images=Strings.of([batch.column("image") for batch in batches]),
        indexes=Strings.of([_indexes(batch) for batch in batches]),
        labels=_numbers(batches, "label"),
        sizes=np.stack([_numbers(batches, "width"), _numbers(batches, "height")], axis=1),
        names=pa.chunked_array([batch.column("name") for batch in batches], pa.string()),
        crc32=_numbers(batches, "crc32") if "crc32" in schema.names else None,
    )


def _indexes(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("index") if "index" in batch.schema.names else pa.nulls(batch.num_rows, pa.binary())


def _numbers(batches: list[pa.RecordBatch], column: str) -> np.ndarray:
    kind = np.uint32 if column == "crc32" else np.int32
    return np.concatenate([np.zeros(0, kind), *(batch.column(column).to_numpy() for batch in batches)])
