"""Checksums of a shard's bytes, in two parts. Each image has one, over its file and its seek index, compared when the
image is first read. The rest of the shard, its frame, has one in the manifest: labels, sizes, names and all that says
where the images lie, read and compared when the shard is opened, before Arrow sees it.

CRC-32 notices every change within 32 bits in a row; zlib's takes 25 µs for a photograph, once, where decoding it takes
a millisecond, every epoch. It is no guard against somebody who means harm: that is what the manifest's SHA-256 is for.
"""

import mmap
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from podium.data.decode.buffers import ByteString

Ranges = tuple[tuple[int, int], ...]
"""(first byte, bytes) of parts of a file, ascending."""

_crc32: Callable[[ByteString, int], int] = zlib.crc32  # type: ignore[assignment]  # arrays are buffers too
_BYTES_COLUMNS = ("image", "index")


def image_crc32(image: ByteString, index: ByteString | None) -> int:
    crc = _crc32(image, 0)
    return crc if index is None else _crc32(index, crc)


def data_ranges(path: Path) -> Ranges:
    """Where the images and indexes lie in a shard that was just written."""
    with pa.memory_map(str(path)) as file:
        base = file.read_buffer().address
        reader = pa.ipc.open_file(file)
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        buffers = [batch.column(name).buffers()[2] for batch in batches for name in _BYTES_COLUMNS]
        return tuple((data.address - base, data.size) for data in buffers if data is not None and data.size)


def frame_crc32(path: Path, data: Ranges) -> int:
    """The checksum of all bytes of the file but those in `data`; only they are read."""
    crc, at = 0, 0
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        for first, count in (*data, (len(view), 0)):
            with view[at:first] as part:
                crc = zlib.crc32(part, crc)
            at = first + count
    return crc
