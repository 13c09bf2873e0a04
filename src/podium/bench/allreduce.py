"""`podium bench allreduce`: times the reductions between worker processes that talk over real sockets, on loopback or
on a torus of rate-limited links. Every host holds one buffer, split over its lanes, and every sum is checked on every
host. What is timed is the sum over hosts: the lanes' own sum within a host needs no link and is not part of it."""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from podium.bench.links import Host, rate_bytes_per_second, shared_loopback, torus_links
from podium.errors import UserError
from podium.recipe.torus import Shape
from podium.reduce.woven import Woven, neighbours

RESNET50_GRADIENT_BYTES = 4 * 25_557_032
SIZES = (1 << 16, 1 << 20, 1 << 22, 1 << 24, RESNET50_GRADIENT_BYTES)
LANES = 4  # one per link of a host


@dataclass(frozen=True)
class Which:
    """What is left out: reductions other than `only`, if there are any, and hosts that are `dead`."""

    only: tuple[str, ...] = ()
    dead: tuple[int, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One buffer size: medians, least and most per reduction, and which of them `reduce = auto` would take here.
    `bound_seconds` is what the links of a host allow at best; on loopback no link sets a bound."""

    hosts: int
    links: str
    bytes: int
    seconds: dict[str, float]
    spread_seconds: dict[str, tuple[float, float]]
    bound_seconds: float | None
    auto: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def bench_allreduce(
    torus: Shape,
    links: str = "shared",
    *,
    rate: str = "200mbit",
    sizes_bytes: Sequence[int] = SIZES,
    repeats: int = 5,
    which: Which | None = None,
    report: Callable[[Measured], None] = lambda measured: None,
) -> list[Measured]:
    """Starts a worker at every place of `torus`, each with its lanes; calls `report` for each size as it is done, and
    returns all of them."""
    only, dead = (which.only, which.dead) if which else ((), ())
    hosts_count = torus.rows * torus.cols - len(dead)
    if links not in ("shared", "torus"):
        raise UserError(f"links={links!r} is not known; use shared (loopback) or torus (rate-limited, needs root)")
    if hosts_count < 2:
        name = f"{torus.rows}x{torus.cols}"
        raise UserError(f"torus {name} has {hosts_count} host; an all-reduce needs 2 or more, for example 2x2")
    for name, given in (("repeats", repeats), *(("size", size) for size in sizes_bytes)):
        if given < 1:
            raise UserError(f"{name}={given}; use 1 or more, for example --repeats 5 --sizes 4194304")
    place = torus_links(torus, rate, dead=dead) if links == "torus" else shared_loopback(hosts_count)
    results = []
    with place as hosts, ExitStack() as stack:
        task = {**torus._asdict(), "sizes_bytes": list(sizes_bytes), "repeats": repeats}
        task |= {"only": list(only), "dead": list(dead)}
        workers = _start(stack, hosts, task | {"coordinator": f"{hosts[0].address}:{_free_port()}"})
        for line in _lines(workers):
            measured = json.loads(line)
            bound = _bound_seconds(torus, rate, measured["bytes"], dead=dead) if links == "torus" else None
            results.append(Measured(hosts_count, links, bound_seconds=bound, **measured))
            report(results[-1])
    return results


def _bound_seconds(torus: Shape, rate: str, size_bytes: int, *, dead: Sequence[int] = ()) -> float:
    """A host must send (N-1)/N of the buffer to be summed elsewhere, and as much again of the sums, over all its
    links; the host with fewest of them sets the pace."""
    hosts = torus.rows * torus.cols - len(dead)
    sent_bytes = 2 * (hosts - 1) / hosts * size_bytes
    fewest = int((neighbours(Woven((torus.rows, torus.cols), tuple(dead))) >= 0).sum(0).min())
    return sent_bytes / (fewest * rate_bytes_per_second(rate))


@dataclass(frozen=True)
class _Worker:
    process: subprocess.Popen[bytes]
    errors: IO[bytes]


def _start(stack: ExitStack, hosts: list[Host], task: dict[str, Any]) -> list[_Worker]:
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={task['lanes']}",
    }
    workers = []
    for number, host in enumerate(hosts):
        errors = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (closed by the stack)
        command = [sys.executable, "-m", "podium.bench.allreduce_worker", json.dumps(task | {"host": number})]
        process = subprocess.Popen(
            [*host.command_prefix, *command], stdout=subprocess.PIPE, stderr=errors, env=environment
        )
        stack.callback(_stop, process)
        workers.append(_Worker(process, errors))
    return workers


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _lines(workers: list[_Worker]) -> Iterator[str]:
    """What worker 0 prints, line by line, while all are well."""
    output = workers[0].process.stdout
    assert output is not None
    while True:
        ready, _, _ = select.select([output], [], [], 1.0)
        if ready:
            line = output.readline()
            if not line:
                break
            yield line.decode()
        _check(workers)
    for worker in workers:
        worker.process.wait()
    _check(workers)


def _check(workers: list[_Worker]) -> None:
    for number, worker in enumerate(workers):
        if worker.process.poll():
            worker.errors.seek(0)
            last = worker.errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise RuntimeError(f"worker {number} of {len(workers)} ended with {worker.process.returncode}: {last[0]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
