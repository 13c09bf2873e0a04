"""Maps devices onto a 2-D torus whose mesh axes are named once, here. A batch-norm tile (the neighbouring chips
that share their statistics) is a pair of sub-axes, so every collective in Podium names axes and none needs index
groups. Nothing here looks at a recipe's other fields, and only `find_devices` touches JAX's runtime.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podium.errors import UserError

# (tile_row, row) runs down the torus and (tile_col, col) along it; (row, col) is the inside of one tile. In this
# order the chips of a tile are neighbours in the batch as well, so a batch-norm group is always a contiguous run
# of the global batch, and the same run at every device count.
AXES = ("tile_row", "tile_col", "row", "col")
Y_AXES = ("tile_row", "row")
X_AXES = ("tile_col", "col")
TILE_AXES = ("row", "col")


@dataclass(frozen=True)
class Torus:
    """rows × cols chips, cut into tiles of tile_rows × tile_cols chips that share batch-norm statistics."""

    rows: int
    cols: int
    tile_rows: int = 1
    tile_cols: int = 1

    @property
    def chips(self) -> int:
        return self.rows * self.cols

    @property
    def tile_chips(self) -> int:
        return self.tile_rows * self.tile_cols

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}"

    def mesh(self, devices: Sequence[jax.Device]) -> Mesh:
        """The mesh over `devices`, which are listed row by row: neighbours in the list are neighbours on the wire."""
        if len(devices) != self.chips:
            raise UserError(
                f"torus {self} needs {self.chips} devices and {len(devices)} are there; "
                f"use --set torus=1x{len(devices)} or add devices"
            )
        grid = np.asarray(devices, dtype=object).reshape(
            self.rows // self.tile_rows, self.tile_rows, self.cols // self.tile_cols, self.tile_cols
        )
        return Mesh(grid.transpose(0, 2, 1, 3), AXES, axis_types=(jax.sharding.AxisType.Auto,) * 4)


def parse_torus(text: str) -> tuple[int, int]:
    """'2x4' → (2, 4)."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError(f"torus={text!r} is not ROWSxCOLS; write for example torus=2x4, or torus=auto")
    return int(parts[0]), int(parts[1])


def lay_out(rows: int, cols: int, batch_global: int, norm_span: int) -> Torus:
    """The torus whose batch-norm tiles hold `norm_span` examples, or as few chips as split evenly into spans."""
    chips = rows * cols
    if batch_global % chips:
        below, above = batch_global // chips * chips, -(-batch_global // chips) * chips
        choices = f"{below} or {above}" if below else f"{above}"
        raise UserError(f"batch_global={batch_global} is not divisible by {chips} chips ({rows}x{cols}); use {choices}")
    batch_per_chip = batch_global // chips
    if norm_span <= batch_per_chip and batch_per_chip % norm_span == 0:
        return Torus(rows, cols)
    if norm_span % batch_per_chip == 0:
        tile = _squarest_tile(rows, cols, norm_span // batch_per_chip)
        if tile:
            return Torus(rows, cols, *tile)
    valid = ", ".join(map(str, valid_spans(rows, cols, batch_global)))
    raise UserError(
        f"model.norm_span={norm_span} fits neither into nor onto {batch_per_chip} images per chip "
        f"(batch_global={batch_global} on {rows}x{cols} chips); spans that do: {valid}"
    )


def valid_spans(rows: int, cols: int, batch_global: int) -> list[int]:
    """Every batch-norm span that this torus can hold at this batch."""
    per_chip = batch_global // (rows * cols)
    within = [span for span in range(1, per_chip + 1) if per_chip % span == 0]
    across = {per_chip * r * c for r in _divisors(rows) for c in _divisors(cols)}
    return sorted(across.union(within))


def _squarest_tile(rows: int, cols: int, chips: int) -> tuple[int, int] | None:
    # Square tiles have the shortest paths between their chips.
    shapes = [(r, chips // r) for r in _divisors(rows) if chips % r == 0 and cols % (chips // r) == 0]
    return min(shapes, key=sum, default=None)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def most_square(chips: int) -> tuple[int, int]:
    """The torus for `torus = auto`: as square as the number of chips allows, wider than high."""
    rows = max(d for d in range(1, math.isqrt(chips) + 1) if chips % d == 0)
    return rows, chips // rows


def find_devices(torus_text: str, processes: int = 1) -> tuple[int, int, Sequence[jax.Device]]:
    """Rows, cols and devices for a recipe's `torus`. Where JAX finds only a CPU, it poses as the chips asked for."""
    if torus_text != "auto":
        rows, cols = parse_torus(torus_text)
        with contextlib.suppress(RuntimeError):  # JAX has started already: what it has then is what there is
            jax.config.update("jax_num_cpu_devices", max(1, rows * cols // processes))
    devices = jax.devices()
    if torus_text == "auto":
        rows, cols = most_square(len(devices))
    if rows * cols > len(devices):
        fitting = "x".join(map(str, most_square(len(devices))))
        raise UserError(
            f"torus={torus_text} needs {rows * cols} devices and {len(devices)} are there "
            f"({devices[0].platform}); use --set torus={fitting}"
        )
    return rows, cols, in_wire_order(devices)[: rows * cols]


def in_wire_order(devices: Sequence[jax.Device]) -> Sequence[jax.Device]:
    """Devices with physical coordinates row by row; the others as JAX lists them, process by process."""
    if not all(hasattr(device, "coords") for device in devices):
        return devices
    return sorted(devices, key=lambda d: (*reversed(d.coords), getattr(d, "core_on_chip", 0)))


def batch_sharding(mesh: Mesh, leading: int = 0) -> NamedSharding:
    """Examples over all chips; `leading` dimensions before them (the steps of a dispatch) are not split."""
    return NamedSharding(mesh, PartitionSpec(*(None,) * leading, AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())
