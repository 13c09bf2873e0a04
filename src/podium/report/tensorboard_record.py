"""What TensorBoard reads: events, each a protocol buffer framed as in a TFRecord. Written by hand, since these are a
dozen bytes of structure and a package that writes them brings protobuf, and PyTorch wherever that is installed.
"""

import struct
import time
from collections.abc import Mapping

import numpy as np

from podium.host.crc32c import masked_crc32c

# Numbers and kinds of the fields, from TensorFlow's event.proto and summary.proto: number << 3 | kind.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1 << 3 | 1, 2 << 3 | 0, 3 << 3 | 2, 5 << 3 | 2, 7 << 3 | 2
_VALUE, _TAG, _SIMPLE_VALUE = 1 << 3 | 2, 1 << 3 | 2, 2 << 3 | 5
_STATUS_START = b"\x08\x01"


def first_record() -> bytes:
    """What a file begins with."""
    return _record(_with_length(_FILE_VERSION, b"brain.Event:2"))


def start_record(step: int) -> bytes:
    """A new start at `step`: TensorBoard hides what an earlier one wrote of it and of later steps."""
    return _record(_step(step) + _with_length(_SESSION_LOG, _STATUS_START))


def scalars_record(step: int, scalars: Mapping[str, float]) -> bytes:
    values = (
        _with_length(_TAG, tag.encode()) + struct.pack("<Bf", _SIMPLE_VALUE, value) for tag, value in scalars.items()
    )
    return _record(_step(step) + _with_length(_SUMMARY, b"".join(_with_length(_VALUE, value) for value in values)))


def _record(event: bytes) -> bytes:
    event = struct.pack("<Bd", _WALL_TIME, time.time()) + event
    length = struct.pack("<Q", len(event))
    crcs = [struct.pack("<I", masked_crc32c(np.frombuffer(part, np.uint8))) for part in (length, event)]
    return length + crcs[0] + event + crcs[1]


def _step(step: int) -> bytes:
    return bytes([_STEP]) + _varint(step)


def _with_length(field: int, content: bytes) -> bytes:
    return bytes([field]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Seven bits a byte, lowest first; all but the last have their highest bit set."""
    groups = [number >> shift & 0x7F for shift in range(0, max(1, number.bit_length()), 7)]
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])
