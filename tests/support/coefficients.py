"""A JPEG file from its very coefficients: what no encoder writes (values of 15 bits, quantizers of 16, codes longer
than any look-up) and a decoder still meets. Written from the standard, not from the decoder.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Blocks = NDArray[np.int64]  # [block rows, block columns, 64], in zigzag order


@dataclass(frozen=True)
class Frame:
    width: int
    height: int
    sampling: Sequence[tuple[int, int]]  # h, v of each component

    def mcus(self) -> tuple[int, int]:
        """Down and across."""
        h, v = (max(factors) for factors in zip(*self.sampling, strict=True))
        return -(-self.height // (8 * v)), -(-self.width // (8 * h))

    def blocks(self, component: int) -> tuple[int, int]:
        (down, across), (h, v) = self.mcus(), self.sampling[component]
        return down * v, across * h


def write_jpeg(frame: Frame, blocks: Sequence[Blocks], quantizers: Sequence[Sequence[int]], shortest: int = 1) -> bytes:
    """One interleaved scan. `shortest` is the length of the shortest Huffman code; most others have 16 bits."""
    codes = list(_codes(frame, blocks))
    tables = [_table({symbol for kind, symbol, _, _ in codes if kind == wanted}, shortest) for wanted in (0, 1)]
    numbers = range(1, len(blocks) + 1)
    header = b"\xff\xd8"
    for number, quantizer in zip(numbers, quantizers, strict=True):
        header += _segment(0xDB, bytes([0x10 | number - 1]) + np.array(quantizer, ">u2").tobytes())
    sizes = frame.height.to_bytes(2, "big") + frame.width.to_bytes(2, "big")
    components = b"".join(
        bytes([number, h << 4 | v, number - 1]) for number, (h, v) in zip(numbers, frame.sampling, strict=True)
    )
    header += _segment(0xC1, b"\x08" + sizes + bytes([len(blocks)]) + components)
    for kind, table in enumerate(tables):
        lengths = [length for length, _ in table.values()]
        counts = bytes(lengths.count(length) for length in range(1, 17))
        header += _segment(0xC4, bytes([kind << 4]) + counts + bytes(table))
    selectors = b"".join(bytes([number, 0]) for number in numbers)
    header += _segment(0xDA, bytes([len(blocks)]) + selectors + b"\x00\x3f\x00")
    return header + _entropy_coded(codes, tables) + b"\xff\xd9"


def _segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content


def _codes(frame: Frame, blocks: Sequence[Blocks]) -> Iterator[tuple[int, int, int, int]]:
    """(0 for DC or 1 for AC, symbol, value's bits, their number), in the order of the file."""
    before = [0] * len(blocks)
    down, across = frame.mcus()
    for row, column in np.ndindex(down, across):
        for c, (h, v) in enumerate(frame.sampling):
            for j, i in np.ndindex(v, h):
                block = [int(value) for value in blocks[c][row * v + j, column * h + i]]
                size, bits = _bits(block[0] - before[c])
                before[c] = block[0]
                yield 0, size, bits, size
                yield from _ac_codes(block[1:])


def _ac_codes(values: list[int]) -> Iterator[tuple[int, int, int, int]]:
    run = 0
    for value in values:
        if value == 0:
            run += 1
            continue
        while run > 15:
            yield 1, 0xF0, 0, 0
            run -= 16
        size, bits = _bits(value)
        yield 1, run << 4 | size, bits, size
        run = 0
    if run:
        yield 1, 0x00, 0, 0


def _bits(value: int) -> tuple[int, int]:
    size = abs(value).bit_length()
    assert size <= 15, f"{value} has no code"
    return size, value if value >= 0 else value + (1 << size) - 1


def _table(symbols: set[int], shortest: int) -> dict[int, tuple[int, int]]:
    """Symbol to (length, code): canonical, each code two bits longer than the one before, up to 16."""
    table, code, length = {}, 0, 0
    for i, symbol in enumerate(sorted(symbols, key=lambda s: (s * 37) % 251)):
        longer = min(shortest + 2 * i, 16)
        code <<= longer - length
        length = longer
        table[symbol] = length, code
        code += 1
    return table


def _entropy_coded(codes: list[tuple[int, int, int, int]], tables: list[dict[int, tuple[int, int]]]) -> bytes:
    text = []
    for kind, symbol, bits, size in codes:
        length, code = tables[kind][symbol]
        text.append(f"{code:0{length}b}" + (f"{bits:0{size}b}" if size else ""))
    joined = "".join(text)
    joined += "1" * (-len(joined) % 8)
    data = int(joined, 2).to_bytes(len(joined) // 8, "big")
    return data.replace(b"\xff", b"\xff\x00")
