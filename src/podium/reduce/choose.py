"""`reduce = auto`: which reduction is fastest here, for the buffers at hand, by a short measurement at start. All
processes time the same runs in the same order and count the slowest process, so all choose alike. On TPUs and GPUs
the compiler knows the links, and within one process there are none: its own is taken unmeasured. It measures seconds,
not statistics: enough to see a factor, and in a tie either will do."""

import gc
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podium.mesh import is_cpu
from podium.reduce.collectives import Reduction, TorusAxes, Xla
from podium.reduce.routed import exchange, ring, swing, torus, woven

Run = Callable[[jax.Array], jax.Array]


REDUCTIONS: dict[str, Callable[..., Reduction]] = {
    "xla": Xla,
    "ring": ring,
    "torus": torus,
    "woven": woven,
    "swing": swing,
    "exchange": exchange,
}
"""What a recipe's `reduce` may name; each is made of axes and, where sums are to travel as bf16, a `wire`."""
MEASURED = ("xla", "ring", "torus")
"""Those among which `auto` chooses. The others are there by name: each would add its compilation to every start."""


def fastest(axes: TorusAxes, sizes: Sequence[int], mesh: Mesh, *, names: Sequence[str] = MEASURED) -> str:
    """The name of the reduction that takes the least time for one all-reduce of each size (in float32 elements)."""
    if not over_sockets(mesh):
        return "xla"
    spec, seconds = PartitionSpec(axes.all), np.zeros(len(names))
    runs = [_all_reduce(REDUCTIONS[name](axes), mesh) for name in names]
    for size in sizes:
        seconds += np.median(seconds_of(runs, _ones(size, mesh, spec), repeats=3), 0)
    return names[int(np.argmin(seconds))]


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
