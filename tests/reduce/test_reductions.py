"""One table of contracts that every reduction keeps, on every shape of torus."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from podium.reduce import (
    Reduction,
    Sockets,
    TorusAxes,
    Woven,
    Xla,
    around,
    exchange,
    links,
    own_shard,
    reference,
    ring,
    sockets,
    swing,
    torus,
    woven,
)
from podium.reduce.colours import torus_routes
from podium.reduce.routes import Routes
from podium.reduce.swing import swing_routes
from podium.reduce.woven import woven_routes

# As in podium.mesh, the rings' axes are not next to each other in the mesh.
AXIS_NAMES = ("tile_row", "tile_col", "row", "col", "lane")
TORUS = TorusAxes(y=("tile_row", "row"), x=("tile_col", "col"))
LANES = TorusAxes(y=("tile_row", "row"), x=("tile_col", "col"), lane=("lane",))


@dataclass(frozen=True)
class Shape:
    mesh: tuple[int, int, int, int, int]
    axes: TorusAxes
    size: int

    @property
    def devices(self) -> int:
        return int(np.prod(self.mesh))

    def build(self) -> Mesh:
        devices = np.array(jax.devices()[: self.devices]).reshape(self.mesh)
        return Mesh(devices, AXIS_NAMES, axis_types=(AxisType.Auto,) * 5)


SHAPES = {
    "1x1": Shape((1, 1, 1, 1, 1), TORUS, 5),
    "1x7": Shape((1, 1, 1, 7, 1), TORUS, 100),
    "5x1": Shape((1, 1, 5, 1, 1), TORUS, 41),
    "2x3": Shape((2, 1, 1, 3, 1), TORUS, 1),
    "3x5": Shape((1, 1, 3, 5, 1), TORUS, 997),
    "4x4 in tiles": Shape((2, 2, 2, 2, 1), TORUS, 1000),
    "2x2, 4 lanes": Shape((2, 2, 1, 1, 4), LANES, 333),
    "2x4, 2 lanes": Shape((1, 2, 2, 2, 2), LANES, 7),
    "1x3, 4 lanes": Shape((1, 1, 1, 3, 4), LANES, 128),
}
REDUCTIONS: dict[str, Callable[[TorusAxes], Reduction]] = {
    "xla": Xla,
    "ring": ring,
    "torus": torus,
    "torus in 3 pieces": lambda axes: torus(axes, pieces=3),
    "woven": woven,
    "swing": swing,
    "exchange": exchange,
    "sockets": sockets,
}
# What is left of a torus, in the rectangle that the mesh makes of it.
HOLES = {
    "4x4 without 5": (Shape((1, 1, 1, 15, 1), TORUS, 997), Woven((4, 4), (5,))),
    "3x3 without 0 and 4": (Shape((1, 1, 1, 7, 1), TORUS, 41), Woven((3, 3), (0, 4))),
    "2x3 without 1, 3 lanes": (Shape((1, 1, 1, 5, 3), LANES, 128), Woven((2, 3), (1,))),
}


def along(routes: Routes) -> Callable[..., Reduction]:
    """Over sockets by these routes, whatever the size."""
    return lambda axes, wire=jnp.float32: Sockets(axes, lambda rows, cols, size_bytes: routes, wire)


# Over sockets its messages come in many parts.
LONG = Shape((2, 1, 1, 3, 1), TORUS, 600_001)
OVER_SOCKETS: dict[str, Routes] = {"torus": torus_routes, "woven": woven_routes, "swing": swing_routes}
every_reduction = pytest.mark.parametrize("make", REDUCTIONS.values(), ids=REDUCTIONS)
# Pieces multiply the program's length, and three shapes show all there is to them: one element, a square torus, lanes.
every_pair = pytest.mark.parametrize(
    ("make", "shape"),
    [
        pytest.param(REDUCTIONS[reduction], SHAPES[shape], id=f"{reduction}, {shape}")
        for reduction in REDUCTIONS
        for shape in (("2x3", "4x4 in tiles", "1x3, 4 lanes") if "pieces" in reduction else SHAPES)
    ]
    + [
        pytest.param(lambda axes, holes=holes: around(axes, holes), shape, id=f"around, {name}")
        for name, (shape, holes) in HOLES.items()
    ]
    + [pytest.param(along(holes), shape, id=f"sockets around, {name}") for name, (shape, holes) in HOLES.items()]
    + [
        pytest.param(along(routes), SHAPES[shape], id=f"sockets by {name}, {shape}")
        for name, routes in OVER_SOCKETS.items()
        for shape in ("2x3", "4x4 in tiles", "2x2, 4 lanes")
    ]
    + [
        pytest.param(
            lambda axes, routes=routes: Sockets(axes, lambda *_: routes, pieces=lambda *_, **__: 3),
            SHAPES[shape],
            id=f"sockets by {name} in pieces, {shape}",
        )
        for name, routes in OVER_SOCKETS.items()
        for shape in ("3x5", "2x4, 2 lanes")
    ]
    + [
        pytest.param(
            lambda axes, pieces=pieces: Sockets(axes, lambda *_: torus_routes, pieces=lambda *_, **__: pieces),
            LONG,
            id=f"sockets, long messages, {pieces} pieces",
        )
        for pieces in (1, 3)
    ],
)


@pytest.fixture(autouse=True)
def _hung_up() -> Iterator[None]:
    """Every test makes connections of its own."""
    yield
    links.leave()


def compiled(reduction: Reduction, shape: Shape):
    """[devices, size] -> all_reduce, reduce_scatter, all_gather of that, sum_over_hosts, each once per device."""

    def run(blocks):
        flat = blocks[0]
        total, shard = reduction.all_reduce(flat), reduction.reduce_scatter(flat)
        whole = reduction.all_gather(shard, flat.size)
        return total, shard, own_shard(total, reduction.axes), whole, reduction.sum_over_hosts(flat)

    axes = shape.axes
    if isinstance(reduction, Sockets):
        links.join(shape.build(), axes.all)
    per_device, same = PartitionSpec(axes.all), PartitionSpec()
    specs = (same, per_device, per_device, same, PartitionSpec(axes.lane))
    return jax.jit(jax.shard_map(run, mesh=shape.build(), in_specs=per_device, out_specs=specs))


def copies(array: jax.Array) -> list[np.ndarray]:
    """What each device really holds, whatever the type says."""
    return [np.asarray(shard.data) for shard in array.addressable_shards]


@every_pair
def test_equals_the_reference_and_repeats_bit_for_bit_without_recompiling(make, shape: Shape) -> None:
    run = compiled(make(shape.axes), shape)
    # Whole numbers: any order of summation gives the same float32.
    blocks = np.random.default_rng(7).integers(-1000, 1000, (shape.devices, shape.size)).astype(np.float32)
    expected = list(blocks)
    given = jax.device_put(blocks, NamedSharding(shape.build(), PartitionSpec(shape.axes.all)))
    total, shards, shards_of_total, whole, host_sums = run(given)
    for copy in copies(total):
        np.testing.assert_array_equal(copy, reference.all_reduce(expected)[0])
    expected_shards = reference.reduce_scatter(expected)
    np.testing.assert_array_equal(shards, np.concatenate(expected_shards))
    np.testing.assert_array_equal(shards_of_total, shards)
    for copy in copies(whole):
        np.testing.assert_array_equal(copy, reference.all_gather(expected_shards, shape.size)[0])
    lanes = shape.mesh[-1]
    by_lane = reference.sum_over_hosts(expected, lanes)
    np.testing.assert_array_equal(host_sums, np.concatenate(by_lane[:: shape.devices // lanes]))

    rough = jax.device_put(np.random.default_rng(8).normal(size=blocks.shape).astype(np.float32), given.sharding)
    first, again = jax.block_until_ready(run(rough)), jax.block_until_ready(run(rough))
    assert run._cache_size() == 1
    for once, twice in zip(first, again, strict=True):
        for a, b in zip(copies(once), copies(twice), strict=True):
            np.testing.assert_array_equal(a, b)
    for copy in copies(first[0]):
        np.testing.assert_array_equal(copy, copies(first[0])[0])
    np.testing.assert_allclose(first[0], reference.all_reduce(list(np.asarray(rough)))[0], rtol=0, atol=1e-4)


@every_reduction
def test_keeps_sharding(make) -> None:
    shape = SHAPES["2x2, 4 lanes"]
    given = np.ones((shape.devices, shape.size), np.float32)
    total, shards, *_ = jax.block_until_ready(compiled(make(shape.axes), shape)(given))
    assert total.sharding.is_fully_replicated
    assert shards.sharding.is_equivalent_to(NamedSharding(shape.build(), PartitionSpec(shape.axes.all)), 1)
    assert len(shards.addressable_shards) == shape.devices


def _around(axes: TorusAxes, wire: jax.typing.DTypeLike) -> Reduction:
    return around(axes, Woven((4, 4), (5,)), wire)


@pytest.mark.parametrize(
    ("make", "name"),
    [(make, name) for make in (Xla, ring, torus, woven, swing, exchange, sockets) for name in ("3x5", "2x2, 4 lanes")]
    + [(_around, "4x4 without 5"), (exchange, "4x4 in tiles"), (swing, "4x4 in tiles")]
    + [(along(Woven((4, 4), (5,))), "4x4 without 5"), (along(torus_routes), "3x5")],
)
def test_bf16_on_the_wire_rounds_once_per_hop_and_alike_on_every_device(make, name: str) -> None:
    shape = SHAPES[name] if name in SHAPES else HOLES[name][0]
    blocks = np.random.default_rng(3).normal(size=(shape.devices, shape.size)).astype(np.float32)
    total, shards, *_ = jax.block_until_ready(compiled(make(shape.axes, wire=jnp.bfloat16), shape)(blocks))
    rows, cols, lanes = shape.mesh[0] * shape.mesh[2], shape.mesh[1] * shape.mesh[3], shape.mesh[4]
    # XLA's order is its own, and it rounds what comes in too: at most once per device.
    hops = shape.devices if make is Xla else rows + cols - 2 if make is torus else rows * cols - 1
    # bf16 keeps 8 bits, so a rounding is off by at most 2^-8 of the value.
    bound = (hops + 1) * 2.0**-8 * np.abs(blocks).sum(0)
    error = np.abs(np.asarray(total) - blocks.sum(0, np.float64))
    assert (error <= bound).all()
    assert error.max() > 1e-4, "nothing was rounded: the wire is not bf16"
    error = np.abs(np.asarray(shards)[: shape.size] - blocks.sum(0, np.float64))
    assert (error <= bound).all()
    assert error.max() > 1e-4, "nothing was rounded: the scatter's wire is not bf16"
    assert total.dtype == shards.dtype == jnp.float32
    assert lanes * rows * cols == len(copies(total))
    for copy in copies(total):
        np.testing.assert_array_equal(copy, copies(total)[0])


def test_bf16_on_the_wire_gathers_float32_state_unrounded() -> None:
    shape = SHAPES["3x5"]
    reduction = torus(shape.axes, wire=jnp.bfloat16)
    state = np.random.default_rng(5).normal(size=shape.size).astype(np.float32)
    run = jax.shard_map(
        lambda x: reduction.all_gather(own_shard(x, shape.axes), shape.size),
        mesh=shape.build(), in_specs=PartitionSpec(), out_specs=PartitionSpec(),
    )  # fmt: skip
    np.testing.assert_array_equal(jax.jit(run)(state), state)


def test_bf16_on_the_wire_moves_bf16() -> None:
    shape = SHAPES["2x2, 4 lanes"]
    reduction = torus(shape.axes, wire=jnp.bfloat16)
    spec = PartitionSpec(shape.axes.all)
    run = jax.shard_map(
        lambda x: reduction.all_reduce(x[0]), mesh=shape.build(), in_specs=spec, out_specs=PartitionSpec()
    )
    sent = [
        line for line in str(jax.make_jaxpr(run)(np.ones((16, 333), np.float32))).splitlines() if "= ppermute[" in line
    ]
    assert len(sent) == 4
    assert all(line.split("= ppermute")[0].strip().split(":")[1].startswith("bf16") for line in sent)


def test_a_tick_of_four_lanes_is_one_permutation() -> None:
    shape = SHAPES["2x2, 4 lanes"]
    spec = PartitionSpec(shape.axes.all)
    run = jax.shard_map(
        lambda x: torus(shape.axes).all_reduce(x[0]), mesh=shape.build(), in_specs=spec, out_specs=PartitionSpec()
    )
    program = jax.jit(run).lower(jax.ShapeDtypeStruct((16, 333), jnp.float32)).compile().as_text() or ""
    ticks = 2 * ((2 - 1) + (2 - 1))
    assert program.count(" collective-permute(") + program.count(" collective-permute-start(") == ticks
