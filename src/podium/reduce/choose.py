"""`reduce = auto`: which reduction is fastest here, for the buffers at hand, by a short measurement at start. All
processes time the same runs in the same order and count the slowest process, so all choose alike. On TPUs and GPUs
the compiler knows the links, and within one process there are none: its own is taken unmeasured. It measures seconds,
not statistics: enough to see a factor, and in a tie either will do."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podium.mesh import is_cpu
from podium.reduce import links
from podium.reduce.collectives import Reduction, TorusAxes, Xla
from podium.reduce.colours import torus_routes
from podium.reduce.loads import Costs, best, load
from podium.reduce.routed import exchange, ring, swing, torus, woven
from podium.reduce.sockets import Sockets, sockets

Run = Callable[[jax.Array], jax.Array]


REDUCTIONS: dict[str, Callable[..., Reduction]] = {
    "xla": Xla,
    "ring": ring,
    "torus": torus,
    "woven": woven,
    "swing": swing,
    "exchange": exchange,
    "sockets": sockets,
}
"""What a recipe's `reduce` may name; each is made of axes and, where sums are to travel as bf16, a `wire`."""
_PROBE = 1 << 18  # float32 of each host: a message of each tick is then well above a packet


def measured() -> tuple[str, ...]:
    """Those among which `auto` chooses. The others are there by name: each would add its compilation to every start."""
    return ("xla", "ring", "torus") if links.missing else ("xla", "torus", "sockets")


def measured_costs(axes: TorusAxes, mesh: Mesh) -> Costs:
    """What a tick and a byte cost between the hosts of `mesh`, which have joined `links`: from a sum of next to nothing
    and one of a megabyte, along the two colours."""
    reduction = Sockets(axes, choice=lambda rows, cols, size: torus_routes)
    rows, cols, lanes = mesh_sizes(axes, mesh)
    known, spec = load(torus_routes, rows, cols), PartitionSpec(axes.all)
    run = _all_reduce(reduction, mesh)
    small, large = (float(np.median(seconds_of([run], _ones(size, mesh, spec), repeats=5))) for size in (1, _PROBE))
    tick = small / max(known.hops, 1)
    return Costs(tick, known.messages * 4 * _PROBE / lanes / max(large - small, 1e-6) or 1.0)


@dataclass(frozen=True)
class Fastest:
    """The choice, and the sentence that says so; empty where nothing was measured."""

    name: str
    why: str = ""


def fastest(axes: TorusAxes, sizes: Sequence[int], mesh: Mesh, *, names: Sequence[str] = ()) -> Fastest:
    """The reduction that takes the least time for one all-reduce of each size (in float32 elements)."""
    if not over_sockets(mesh):
        return Fastest("xla")
    names = names or measured()
    if "sockets" in names:
        links.join(mesh, axes.all)
        links.use(measured_costs(axes, mesh))
    spec, seconds = PartitionSpec(axes.all), np.zeros(len(names))
    runs = [_all_reduce(REDUCTIONS[name](axes), mesh) for name in names]
    for size in sizes:
        seconds += np.median(seconds_of(runs, _ones(size, mesh, spec), repeats=3), 0)
    name = names[int(np.argmin(seconds))]
    found = ", ".join(f"{name} {took:.3f} s" for name, took in zip(names, seconds, strict=True))
    along = f" ({_schedules(axes, sizes, mesh)})" if name == "sockets" else ""
    return Fastest(name, f"sums of gradients go by {name}{along}: measured {found} for one of each bucket")


def _schedules(axes: TorusAxes, sizes: Sequence[int], mesh: Mesh) -> str:
    """Which bucket goes along which schedule, and by what measured costs."""
    rows, cols, lanes = mesh_sizes(axes, mesh)
    costs = links.costs()
    of_buckets = [f"{4e-6 * size:.3g} MB {best(rows, cols, 4 * size // lanes, costs=costs)}" for size in sizes]
    told = f"{1e3 * costs.tick_seconds:.2g} ms a tick and {costs.bytes_per_second / 1e6:.3g} MB/s a link"
    return f"{', '.join(of_buckets)}; {told}"


def mesh_sizes(axes: TorusAxes, mesh: Mesh) -> tuple[int, int, int]:
    """(rows, cols, lanes)."""
    rows, cols, lanes = (int(np.prod([mesh.shape[name] for name in names])) for names in (axes.y, axes.x, axes.lane))
    return rows, cols, lanes


def over_sockets(mesh: Mesh) -> bool:
    """Whether sums travel between processes, and not over links that the compiler knows."""
    return is_cpu(mesh) and len({device.process_index for device in mesh.devices.flat}) > 1


def seconds_of(runs: Sequence[Run], given: jax.Array, repeats: int) -> np.ndarray:
    """[repeats, runs]: the slowest process's time of each run. Repeats are interleaved; one before them compiles."""
    seconds = np.zeros((repeats + 1, len(runs)), np.float32)
    gc.collect()  # and not while a run is timed
    for repeat in range(repeats + 1):
        for k, run in enumerate(runs):
            multihost_utils.sync_global_devices("podium: start together")
            start = time.perf_counter()
            run(given).block_until_ready()
            seconds[repeat, k] = time.perf_counter() - start
    by_process = multihost_utils.process_allgather(seconds[1:]).reshape(-1, repeats, len(runs))
    return by_process.max(0)


def _ones(size: int, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    return jax.make_array_from_callback(
        (mesh.size, size), NamedSharding(mesh, spec), lambda index: np.ones((1, size), np.float32)
    )


def _all_reduce(reduction: Reduction, mesh: Mesh) -> Run:
    spec = PartitionSpec(reduction.axes.all)
    run = jax.shard_map(lambda x: reduction.all_reduce(x[0]), mesh=mesh, in_specs=spec, out_specs=PartitionSpec())
    return jax.jit(run)
