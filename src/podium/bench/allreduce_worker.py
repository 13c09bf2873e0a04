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
from podium.reduce import REDUCTIONS, Reduction, Sockets, TorusAxes, Woven, around, links
from podium.reduce.choose import Run, measured, measured_costs, seconds_of
from podium.reduce.collectives import varying
from podium.reduce.loads import best, candidates
from podium.reduce.routes import Routes

_AXES = TorusAxes(y=("row",), x=("col",), lane=("lane",))
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
    shape, dead = (task["rows"], task["cols"]), tuple(task["dead"])
    hosts = shape[0] * shape[1] - len(dead)
    jax.distributed.initialize(task["coordinator"], hosts, task["host"])
    places = (1, hosts) if dead else shape
    devices = np.array(jax.devices()).reshape(*places, task["lanes"])
    mesh = Mesh(devices, ("row", "col", "lane"), axis_types=(AxisType.Auto,) * 3)
    if not links.missing:
        links.join(mesh, _AXES.all)
        if not dead:
            links.use(measured_costs(_AXES, mesh))
    reductions = _around(Woven(shape, dead)) if dead else _whole(*shape)
    reductions = {name: made for name, made in reductions.items() if not task["only"] or name in task["only"]}
    for size_bytes in task["sizes_bytes"]:
        found = _measure(mesh, reductions, size_bytes, repeats=task["repeats"])
        if task["host"] == 0:
            print(json.dumps(found), file=results, flush=True)
    jax.distributed.shutdown()


def _whole(rows: int, cols: int) -> dict[str, Reduction]:
    """By name; those over sockets also along each schedule that they choose among."""
    found = {name: make(_AXES) for name, make in REDUCTIONS.items() if name != "sockets" or not links.missing}
    if "sockets" in found:
        found |= {f"sockets, {name}": _along(routes) for name, routes in candidates(rows, cols).items()}
    return found


def _around(holes: Woven) -> dict[str, Reduction]:
    found: dict[str, Reduction] = {"xla": REDUCTIONS["xla"](_AXES), "around": around(_AXES, holes)}
    return found if links.missing else found | {"sockets, around": _along(holes)}


def _along(routes: Routes) -> Sockets:
    return Sockets(_AXES, choice=lambda rows, cols, size_bytes: routes)


def _own_stdout() -> IO[str]:
    """gloo prints each connection to stdout: it gets stderr, and the results a stream of their own."""
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return results


def _measure(mesh: Mesh, reductions: dict[str, Reduction], size_bytes: int, *, repeats: int) -> dict[str, Any]:
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
    for name, reduction in reductions.items():
        for shard in _sums(reduction, mesh, times=1)(shares).addressable_shards:
            if not np.array_equal(np.asarray(shard.data), pattern * (hosts * (hosts + 1) // 2)):
                raise SystemExit(f"{name}: a sum of {size_bytes} bytes over {hosts} hosts is wrong on {shard.device}")
    times = max(1, min(16, _TIMED_BYTES // size_bytes))
    runs = [_sums(reduction, mesh, times) for reduction in reductions.values()]
    # The choice that `auto` would make, from its own short measurement.
    names = [name for name in measured() if name in reductions] or list(reductions)
    of_auto = [runs[list(reductions).index(name)] for name in names]
    chosen = names[int(np.argmin(np.median(seconds_of(of_auto, shares, repeats=min(3, repeats)), 0)))]
    if chosen == "sockets":
        rows, cols = mesh.shape["row"], mesh.shape["col"]
        chosen += f", {best(rows, cols, shares.nbytes // mesh.size, costs=links.costs())}"
    seconds = seconds_of(runs, shares, repeats) / times
    by_name = {name: seconds[:, k] for k, name in enumerate(reductions)}
    return {
        "bytes": size_bytes,
        "seconds": {name: round(float(np.median(s)), 6) for name, s in by_name.items()},
        "spread_seconds": {name: [round(float(s.min()), 6), round(float(s.max()), 6)] for name, s in by_name.items()},
        "auto": chosen,
    }


def _sums(reduction: Reduction, mesh: Mesh, times: int) -> Run:
    """`times` sums over the hosts, each of the one before."""

    def run(shares: jax.Array) -> jax.Array:
        return lax.fori_loop(0, times, lambda _, share: varying(reduction.sum_over_hosts(share), _AXES), shares[0])

    spec = PartitionSpec(_AXES.all)
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec))


if __name__ == "__main__":
    main()
