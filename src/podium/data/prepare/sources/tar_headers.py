"""The headers of a tar, in the order of the file: ustar, GNU and pax, with their long names. Reads no contents and
believes nothing: every step goes forward by at least a block, a header that lies about its size is handed out as
refused, and what describes a member is read only up to a limit. Python's tarfile, which was used before, goes backwards
over a negative size for ever, and reads a long name of 40 GiB into memory.

    https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html#tag_20_92_13
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

BLOCK = 512
_DESCRIPTION_BYTES_MAX = 2**20
_REGULAR, _LINKS, _FOLDER = b"\x00" + b"07", b"12", b"5"
_WITHOUT_DATA = b"123456"  # links, devices, folders and pipes: whatever size they give
_LONG_NAME, _LONG_LINK, _PAX, _PAX_FOR_ALL, _SPARSE = b"L", b"K", b"xX", b"g", b"S"
_DESCRIPTIONS = _LONG_NAME + _LONG_LINK + _PAX + _PAX_FOR_ALL
_OCTAL = re.compile(rb" *([0-7]*) *")


class Damaged(Exception):
    """No header where one should be; says at which byte."""


@dataclass(frozen=True)
class Header:
    name: str
    kind: bytes
    offset: int
    """Where the data begins."""
    bytes: int
    sparse: bool = False
    refused: str | None = None

    @property
    def regular(self) -> bool:
        return self.kind in _REGULAR and not self.sparse

    @property
    def link(self) -> bool:
        return self.kind in _LINKS

    @property
    def folder(self) -> bool:
        return self.kind in _FOLDER or (self.kind == b"\0" and self.name.endswith("/"))


def headers(file: BinaryIO) -> Iterator[Header]:
    """Each member's. Ends at a block of zeros, or raises Damaged."""
    file_bytes, at = file.seek(0, 2), 0
    described: dict[str, bytes] = {}
    while True:
        file.seek(at)
        block = file.read(BLOCK)
        if block == bytes(BLOCK):
            return
        header = _parsed(block, at)
        if header is None:
            raise Damaged(min(at, file_bytes))
        header = _checked(header, described, file_bytes)
        described = described if header.kind in _DESCRIPTIONS else {}
        at = header.offset
        if header.refused is None:
            if header.kind in _DESCRIPTIONS:
                header = _describe(header, file.read(header.bytes), described)
            elif header.kind == _SPARSE:
                at = _after_sparse_map(file, block, at)
            at += 0 if header.kind in _WITHOUT_DATA else -(-header.bytes // BLOCK) * BLOCK
        if header.refused or header.kind not in _DESCRIPTIONS:
            yield header


def _parsed(block: bytes, at: int) -> Header | None:
    """None where the block is no header: too short, or with another checksum than its bytes have."""
    if len(block) < BLOCK:
        return None
    checksum, size = _number(block[148:156]), _number(block[124:136])
    if checksum is None or size is None or checksum not in _sums(block):
        return None
    name, prefix = (field.partition(b"\0")[0] for field in (block[:100], block[345:500]))
    if prefix and block[257:263] == b"ustar\0":  # GNU's own headers keep times there
        name = prefix + b"/" + name
    return Header(_text(name), block[156:157], at + BLOCK, size)


def _sums(block: bytes) -> tuple[int, int]:
    """Both sums of all bytes, with spaces where the sum itself stands: some old programs took the bytes as signed."""
    rest = block[:148] + b" " * 8 + block[156:]
    return sum(rest), sum(rest) - 256 * sum(byte > 127 for byte in rest)


def _number(field: bytes) -> int | None:
    """Octal, or in GNU's way of large numbers two's complement with the first bit set."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big") - (256 ** (len(field) - 1) if field[0] == 0xFF else 0)
    octal = _OCTAL.fullmatch(field.partition(b"\0")[0])
    return int(octal[1] or b"0", 8) if octal else None


def _checked(header: Header, described: dict[str, bytes], file_bytes: int) -> Header:
    """With the name and size that were told before it; refused where a size cannot be."""
    if header.kind not in _DESCRIPTIONS:
        name, size = described.get("path"), described.get("size", b"")
        sparse = any(key.startswith("GNU.sparse") for key in described)
        header = replace(header, name=_text(name) if name else header.name, sparse=sparse)
        if size.isdigit() and len(size) < 20:
            header = replace(header, bytes=int(size))
        elif size:
            return replace(header, bytes=0, refused=f"its size is {_text(size[:20])!r}")
    if header.kind in _WITHOUT_DATA:
        return header
    if header.bytes < 0:
        return replace(header, bytes=0, refused=f"its size is {header.bytes} bytes")
    if header.kind in _DESCRIPTIONS and header.bytes > _DESCRIPTION_BYTES_MAX:
        limit = f"more than {_DESCRIPTION_BYTES_MAX:,}"
        return replace(header, bytes=0, refused=f"a description of {header.bytes:,} bytes, {limit}")
    if header.bytes > file_bytes:
        refused = f"its size is {header.bytes:,} bytes, more than the whole archive has"
        return replace(header, bytes=0, refused=refused)
    return header


def _describe(header: Header, content: bytes, described: dict[str, bytes]) -> Header:
    """Notes what a description says of the member after it. What stands for all members (g) has no name or size."""
    if header.kind in _PAX:
        try:
            described.update(pax_records(content))
        except ValueError as error:
            return replace(header, refused=str(error))
    elif header.kind == _LONG_NAME:
        described["path"] = content.partition(b"\0")[0]
    return header


def pax_records(content: bytes) -> dict[str, bytes]:
    """`length key=value` lines, each as long as it says. Raises ValueError."""
    records, at = {}, 0
    while at < len(content) and content[at]:
        space = content.find(b" ", at, at + 12)
        digits = content[at:space]
        length = int(digits) if space > at and digits.isdigit() else 0
        key, equals, value = content[space + 1 : at + length].partition(b"=")
        if not equals or not value.endswith(b"\n") or at + length > len(content):
            raise ValueError(f"a pax header that is damaged at byte {at}")
        records[_text(key)] = value[:-1]
        at += length
    return records


def _after_sparse_map(file: BinaryIO, block: bytes, at: int) -> int:
    """Where the data begins: GNU's map of a sparse file may go on for some blocks."""
    more = block[482]
    while more and len(block := file.read(BLOCK)) == BLOCK:
        at, more = at + BLOCK, block[504]
    return at


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")
