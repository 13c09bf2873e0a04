"""The shape of a torus and the batch-norm tiles it is cut into, as plain arithmetic. A place on the torus is a host, or
a chip with several cores, and its devices are its lanes. A tile is a block of neighbouring devices that share their
batch-norm statistics. Nothing here needs JAX: `podium.mesh` lays devices out in these shapes.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from podium.errors import UserError

_SPAN_LEAST = 16  # below it batch norm's statistics are so noisy that little is learned (docs/accuracy.md)


class Shape(NamedTuple):
    """rows × cols places on the torus, each of `lanes` devices."""

    rows: int
    cols: int
    lanes: int = 1

    @property
    def chips(self) -> int:
        return math.prod(self)

    def __str__(self) -> str:
        return "x".join(map(str, self if self.lanes > 1 else self[:2]))


_ONE_CHIP = Shape(1, 1)


@dataclass(frozen=True)
class Torus:
    """A shape, cut into tiles that share batch-norm statistics."""

    shape: Shape
    tile: Shape = _ONE_CHIP

    @property
    def chips(self) -> int:
        return self.shape.chips

    def __str__(self) -> str:
        return str(self.shape)


def parse_torus(text: str) -> Shape:
    """'2x4' → 2 rows, 4 columns; '2x4x2' → each place of two devices."""
    parts = text.lower().split("x")
    if len(parts) not in (2, 3) or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError(
            f"torus={text!r} is not ROWSxCOLS or ROWSxCOLSxLANES; write for example torus=2x4, or torus=auto"
        )
    return Shape(*map(int, parts))


def lay_out(shape: Shape, batch_global: int, norm_span: int) -> Torus:
    """The torus whose batch-norm tiles hold `norm_span` examples, or as few chips as split evenly into spans."""
    chips = shape.chips
    if batch_global % chips:
        below, above = batch_global // chips * chips, -(-batch_global // chips) * chips
        choices = f"{below} or {above}" if below else f"{above}"
        raise UserError(f"batch_global={batch_global} is not divisible by {chips} chips ({shape}); use {choices}")
    batch_per_chip = batch_global // chips
    if norm_span <= batch_per_chip and batch_per_chip % norm_span == 0:
        return Torus(shape)
    if norm_span % batch_per_chip == 0:
        tile = _nearest_tile(shape, norm_span // batch_per_chip)
        if tile:
            return Torus(shape, tile)
    valid = ", ".join(map(str, valid_spans(shape, batch_global)))
    raise UserError(
        f"model.norm_span={norm_span} fits neither into nor onto {batch_per_chip} images per chip "
        f"(batch_global={batch_global} on {shape} chips); spans that do: {valid}"
    )


def valid_spans(shape: Shape, batch_global: int) -> list[int]:
    """Every batch-norm span that this torus can hold at this batch."""
    per_chip = batch_global // shape.chips
    within = [span for span in range(1, per_chip + 1) if per_chip % span == 0]
    return sorted({per_chip * tile.chips for tile in _tiles(shape)}.union(within))


def _tiles(shape: Shape) -> list[Shape]:
    rows, cols, lanes = map(_divisors, shape)
    return [Shape(r, c, n) for r in rows for c in cols for n in lanes]


def _nearest_tile(shape: Shape, chips: int) -> Shape | None:
    # The lanes of a place are nearer to each other than to any neighbour; then, square tiles have the shortest paths.
    tiles = [tile for tile in _tiles(shape) if tile.chips == chips]
    return min(tiles, key=lambda tile: (-tile.lanes, tile.rows + tile.cols), default=None)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def most_square(places: int) -> tuple[int, int]:
    """The grid that is as square as the number allows, wider than high."""
    rows = max(d for d in range(1, math.isqrt(places) + 1) if places % d == 0)
    return rows, places // rows


def spans_that_fit(batch: int, span: int) -> str:
    """What to write instead: spans that divide the batch and are large enough to learn with, or another batch."""
    fitting = [s for s in range(1, batch + 1) if batch % s == 0]
    good = [s for s in fitting if s >= min(_SPAN_LEAST, span)] or fitting[-1:]
    nearest = sorted(sorted(good, key=lambda s: abs(s - span))[:2])
    other = span * max(1, round(batch / span))
    return f"use --set model.norm_span={' or '.join(map(str, nearest))}, or --set batch_global={other}"
