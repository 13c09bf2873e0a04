"""One host of `podium bench allreduce`. It joins the others, runs every reduction on every size, compares each sum
with what it must be, and, as host 0, prints one JSON line per size. Started by `allreduce`, with its task as the
argument."""

import ctypes
import json
import os
import signal
import sys
from typing import IO, Any

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from podium.host.malloc import keep
from podium.reduce import REDUCTIONS, Reduction, TorusAxes
from podium.reduce.choose import MEASURED, Run, seconds_of
from podium.reduce.collectives import varying

_AXES = TorusAxes(y=("row",), x=("col",), lane=("lane",))
_REDUCTIONS: dict[str, Reduction] = {name: make(_AXES) for name, make in REDUCTIONS.items()}
# Small sums run one after the other in one program and are timed together: to start a program on 16 hosts that share
# two cores takes as long as a small sum.
_TIMED_BYTES = 1 << 25
_PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed benchmark leaves no workers
    task = json.loads(sys.argv[1])
    results = _own_stdout()
    keep()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    rows, cols, lanes = task["rows"], task["cols"], task["lanes"]
    jax.distributed.initialize(task["coordinator"], rows * cols, task["host"])
    devices = np.array(jax.devices()).reshape(rows, cols, lanes)
    mesh = Mesh(devices, ("row", "col", "lane"), axis_types=(AxisType.Auto,) * 3)
    for size_bytes in task["sizes_bytes"]:
        measured = _measure(mesh, size_bytes, task["repeats"])
        if task["host"] == 0:
            print(json.dumps(measured), file=results, flush=True)
    jax.distributed.shutdown()


def _own_stdout() -> IO[str]:
    """gloo prints each connection to stdout: it gets stderr, and the results a stream of their own."""
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return results


def _measure(mesh: Mesh, size_bytes: int, repeats: int) -> dict[str, Any]:
    lanes = mesh.shape["lane"]
    hosts = mesh.size // lanes
    share_size = -(-size_bytes // 4 // lanes)
    # Whole numbers below 2^24: every order of summation gives the same float32.
    pattern = np.arange(share_size, dtype=np.float32) % 251

    def share(index: tuple[slice, ...] | None) -> np.ndarray:
        assert index is not None
        return (pattern * (1 + index[0].start % hosts))[None]

    sharding = NamedSharding(mesh, PartitionSpec(_AXES.all))
    shares = jax.make_array_from_callback((mesh.size, share_size), sharding, share)
    for name, reduction in _REDUCTIONS.items():
        for shard in _sums(reduction, mesh, times=1)(shares).addressable_shards:
            if not np.array_equal(np.asarray(shard.data), pattern * (hosts * (hosts + 1) // 2)):
                raise SystemExit(f"{name}: a sum of {size_bytes} bytes over {hosts} hosts is wrong on {shard.device}")
    times = max(1, min(16, _TIMED_BYTES // size_bytes))
    runs = [_sums(reduction, mesh, times) for reduction in _REDUCTIONS.values()]
    # The choice that `auto` would make, from its own short measurement.
    of_auto = [list(_REDUCTIONS).index(name) for name in MEASURED]
    chosen = int(np.argmin(np.median(seconds_of([runs[k] for k in of_auto], shares, repeats=3), 0)))
    seconds = seconds_of(runs, shares, repeats) / times
    by_name = {name: seconds[:, k] for k, name in enumerate(_REDUCTIONS)}
    return {
        "bytes": size_bytes,
        "seconds": {name: round(float(np.median(s)), 6) for name, s in by_name.items()},
        "spread_seconds": {name: [round(float(s.min()), 6), round(float(s.max()), 6)] for name, s in by_name.items()},
        "auto": MEASURED[chosen],
    }


def _sums(reduction: Reduction, mesh: Mesh, times: int) -> Run:
    """`times` sums over the hosts, each of the one before."""

    def run(shares: jax.Array) -> jax.Array:
        return lax.fori_loop(0, times, lambda _, share: varying(reduction.sum_over_hosts(share), _AXES), shares[0])

    spec = PartitionSpec(_AXES.all)
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec))


if __name__ == "__main__":
    main()
