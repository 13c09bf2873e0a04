"""Maps devices onto a 2-D torus whose mesh axes are named once, here. A place on the torus is a host, or a chip with
several cores, and its devices are its lanes. A batch-norm tile (the neighbouring devices that share their statistics)
is a block of sub-axes, so every collective in Podium names axes and none needs index groups. Nothing here looks at a
recipe's other fields, and only `find_devices` touches JAX's runtime.
"""

import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podium.errors import UserError
from podium.host import malloc
from podium.processes.join import process_count

# (tile_row, row) runs down the torus, (tile_col, col) along it and (tile_lane, lane) over the devices of one place;
# (row, col, lane) is the inside of one tile. In this order the devices of a tile are neighbours in the batch as well,
# so a batch-norm group is always a contiguous run of the global batch, and the same run at every device count.
AXES = ("tile_row", "tile_col", "tile_lane", "row", "col", "lane")
Y_AXES = ("tile_row", "row")
X_AXES = ("tile_col", "col")
LANE_AXES = ("tile_lane", "lane")
TILE_AXES = ("row", "col", "lane")


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

    def mesh(self, devices: Sequence[jax.Device]) -> Mesh:
        """The mesh over `devices`, which are listed row by row, the lanes of a place together: neighbours in the list
        are neighbours on the wire."""
        if len(devices) != self.chips:
            raise UserError(
                f"torus {self} needs {self.chips} devices and {len(devices)} are there; "
                f"use --set torus=1x{len(devices)} or add devices"
            )
        cut = [part for whole, tile in zip(self.shape, self.tile, strict=True) for part in (whole // tile, tile)]
        grid = np.asarray(devices, dtype=object).reshape(cut)
        return Mesh(grid.transpose(0, 2, 4, 1, 3, 5), AXES, axis_types=(jax.sharding.AxisType.Auto,) * len(AXES))


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
    """As square as the number allows, wider than high."""
    rows = max(d for d in range(1, math.isqrt(places) + 1) if places % d == 0)
    return rows, places // rows


def pass_over_libtpu() -> None:
    """Where there are no chips: it is there for `podium plan`; it would look for some, complain and leave log files."""
    chosen = find_spec("jax_plugins") or malloc.accelerator_files() or os.environ.get("JAX_PLATFORMS")
    if find_spec("libtpu") and not chosen:
        jax.config.update("jax_platforms", "cpu")


def find_devices(torus_text: str) -> tuple[Shape, Sequence[jax.Device]]:
    """The shape and devices for a recipe's `torus`. Where JAX finds only a CPU, it poses as the chips asked for."""
    pass_over_libtpu()
    if torus_text != "auto":
        shape = parse_torus(torus_text)
        with contextlib.suppress(RuntimeError):  # JAX has started already: what it has then is what there is
            jax.config.update(
                "jax_num_cpu_devices", max(1, shape.chips // process_count())
            )  # each process brings its share
    devices = jax.devices()
    if torus_text == "auto":
        shape = natural_shape(devices)
    if shape.chips > len(devices):
        raise UserError(
            f"torus={torus_text} needs {shape.chips} devices and {len(devices)} are there "
            f"({devices[0].platform}); use --set torus={natural_shape(devices)}"
        )
    if shape.chips < len(devices) and jax.process_count() > 1:
        raise UserError(
            f"torus={torus_text} has {shape.chips} chips and {jax.process_count()} processes bring {len(devices)} "
            f"devices; use --set torus={natural_shape(devices)}, so that each process has work"
        )
    return shape, in_wire_order(devices)[: shape.chips]


def natural_shape(devices: Sequence[jax.Device]) -> Shape:
    """The shape for `torus = auto`: the chips where they are on a pod, with their cores as lanes; else the hosts in a
    square with their devices as lanes; the devices of a single host in a square."""
    if all(hasattr(device, "coords") for device in devices):
        x, y, *z = (len(set(places)) for places in zip(*(device.coords for device in devices), strict=True))
        places = Shape(y * math.prod(z), x)
    else:
        hosts = len({device.process_index for device in devices})
        places = Shape(*most_square(hosts if hosts > 1 and len(devices) % hosts == 0 else len(devices)))
    lanes = len(devices) // places.chips
    return Shape(*places[:2], lanes) if lanes * places.chips == len(devices) else Shape(*most_square(len(devices)))


def in_wire_order(devices: Sequence[jax.Device]) -> Sequence[jax.Device]:
    """Devices with physical coordinates row by row; the others as JAX lists them, process by process."""
    if not all(hasattr(device, "coords") for device in devices):
        return devices
    return sorted(devices, key=lambda d: (*reversed(d.coords), getattr(d, "core_on_chip", 0)))


def is_cpu(mesh: Mesh) -> bool:
    return mesh.devices.flat[0].platform == "cpu"


def batch_sharding(mesh: Mesh, leading: int = 0) -> NamedSharding:
    """Examples over all chips; `leading` dimensions before them (the steps of a dispatch) are not split."""
    return NamedSharding(mesh, PartitionSpec(*(None,) * leading, AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())
