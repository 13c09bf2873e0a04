"""ImageNet TFRecords, read without TensorFlow: the record framing with its checksums, and as much of the
protobuf wire format as `tf.train.Example` uses. A scan notes where in the file each image lies and keeps none
of them.

    record  = length uint64 · masked CRC of the length uint32 · Example · masked CRC of the Example uint32
    Example = a map from feature name to a list of byte strings, of floats or of int64s
"""

import os
import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from podium.data.prepare.sources.rows import CLASSES_MAX, Rows
from podium.host.crc32c import masked_crc32c

Span = tuple[int, int]
"""Where a byte string begins and ends."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_HEADER_BYTES, _FOOTER_BYTES = 12, 4
_IMAGENET_LABEL = "image/class/label"


def is_tfrecord(head: bytes) -> bool:
    return len(head) >= _HEADER_BYTES and _checked(head[:8], head[8:12])


def scan_tfrecord(path: str, file_name: str, split: str | None) -> tuple[bool, pa.Table]:
    """(whether its class numbers may count from 1, the rows)."""
    rows, may_count_from_one = Rows(path), False
    for record, (offset, example) in enumerate(_records(path, file_name, split, rows=rows)):
        name = f"{file_name}:{record}"
        try:
            features = parse_example(example)
            images = features.get("image/encoded") or features.get("image")
            numbers = features.get(_IMAGENET_LABEL) or features.get("label")
            if not images or isinstance(images[0], int):
                raise ValueError("no feature image/encoded")
            if not numbers or not isinstance(numbers[0], int) or not 0 <= numbers[0] < CLASSES_MAX:
                raise ValueError(f"no class number from 0 to {CLASSES_MAX - 1:,} in {_IMAGENET_LABEL}")
        except ValueError as error:
            rows.refuse(name, str(error), split)
            continue
        may_count_from_one |= _IMAGENET_LABEL in features
        start, end = images[0]
        class_name = _text(example, features, "image/class/synset") or _text(example, features, "image/class/text")
        file = _text(example, features, "image/filename") or _text(example, features, "file_name")
        rows.add(
            file or name,
            offset + start,
            end - start,
            split=split,
            number=numbers[0],
            class_name=class_name or None,
        )
    return may_count_from_one, rows.table()


def _records(path: str, file_name: str, split: str | None, *, rows: Rows) -> Iterator[tuple[int, bytes]]:
    """(offset, Example) of each record. A wrong checksum loses its record, or the rest of the file if it was
    the length's."""
    file_bytes, at = os.path.getsize(path), 0
    with open(path, "rb") as file:
        while at < file_bytes:
            header = file.read(_HEADER_BYTES)
            if len(header) < _HEADER_BYTES or not _checked(header[:8], header[8:]):
                rows.refuse(file_name, f"bad checksum of the record length at byte {at}: the rest is lost", split)
                return
            (example_bytes,) = struct.unpack_from("<Q", header)
            if at + _HEADER_BYTES + example_bytes + _FOOTER_BYTES > file_bytes:
                rows.refuse(file_name, f"truncated: the record at byte {at} goes beyond the end", split)
                return
            example, footer = file.read(example_bytes), file.read(_FOOTER_BYTES)
            if _checked(example, footer):
                yield at + _HEADER_BYTES, example
            else:
                rows.refuse(file_name, f"bad checksum of the record at byte {at}", split)
            at += _HEADER_BYTES + example_bytes + _FOOTER_BYTES


def _checked(data: bytes, masked_crc: bytes) -> bool:
    return masked_crc32c(np.frombuffer(data, np.uint8)) == int.from_bytes(masked_crc, "little")


def parse_example(example: bytes) -> dict[str, list[Span] | list[int]]:
    """The features of a serialized tf.train.Example: spans of byte strings, or integers. Raises
    ValueError."""
    features: dict[str, list[Span] | list[int]] = {}
    for features_span in _messages(example, (0, len(example)), 1):
        for entry in _messages(example, features_span, 1):
            key, value = "", None
            for number, field in _fields(example, entry):
                if number == 1 and isinstance(field, tuple):
                    key = example[slice(*field)].decode()
                elif number == 2 and isinstance(field, tuple):
                    value = field
            if value is not None:
                features[key] = _feature(example, value)
    return features


def _feature(example: bytes, feature: Span) -> list[Span] | list[int]:
    for number, value in _fields(example, feature):
        if number == 1 and isinstance(value, tuple):  # bytes_list
            return list(_messages(example, value, 1))
        if number == 3 and isinstance(value, tuple):  # int64_list, packed or not
            return [item for _, field in _fields(example, value) for item in _integers(example, field)]
    return []


def _integers(example: bytes, field: Span | int) -> Iterator[int]:
    if isinstance(field, int):
        yield _signed(field)
        return
    at, end = field
    while at < end:
        value, at = _varint(example, at, end)
        yield _signed(value)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _messages(example: bytes, message: Span, wanted: int) -> Iterator[Span]:
    for number, field in _fields(example, message):
        if number == wanted and isinstance(field, tuple):
            yield field


def _fields(example: bytes, message: Span) -> Iterator[tuple[int, Span | int]]:
    """(field number, value): a varint's value, or the span of anything longer."""
    at, end = message
    while at < end:
        tag, at = _varint(example, at, end)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _varint(example, at, end)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            length, at = _varint(example, at, end)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"protobuf wire type {wire} at byte {at}")
        if at + length > end:
            raise ValueError(f"protobuf field of {length} bytes goes beyond its message at byte {at}")
        yield tag >> 3, (at, at + length)
        at += length


def _varint(example: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise ValueError(f"protobuf number cut off at byte {at}")
        byte = example[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise ValueError(f"protobuf number of more than 10 bytes before byte {at}")


def _text(example: bytes, features: dict[str, list[Span] | list[int]], key: str) -> str:
    values = features.get(key)
    return example[slice(*values[0])].decode(errors="replace") if values and isinstance(values[0], tuple) else ""
