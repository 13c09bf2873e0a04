"""Tars that no honest program writes: headers are made byte by byte, with whatever size they are given."""

BLOCK = 512


def header(name: bytes, size: int, kind: bytes = b"0", magic: bytes = b"ustar\x0000") -> bytes:
    """A size that is negative or too large for octal digits is written as GNU does it, in base 256."""
    field = b"%011o\0" % size
    if not 0 <= size < 8**11:
        field = (b"\xff" if size < 0 else b"\x80") + (size % 256**11).to_bytes(11, "big")
    block = bytearray(name.ljust(100, b"\0") + b"0000644\0" * 3 + field + b"0" * 11 + b"\0" + b" " * 8 + kind)
    block += bytes(100) + magic
    block += bytes(BLOCK - len(block))
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def member(name: bytes, content: bytes, kind: bytes = b"0") -> bytes:
    return header(name, len(content), kind) + content + bytes(-len(content) % BLOCK)


END = bytes(2 * BLOCK)
