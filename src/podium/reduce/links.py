"""The native library of `native/links`: a thread that sums between processes over sockets of its own, along the tables
of `routes`, while XLA computes. Here the processes exchange their addresses, tables become numbers, and a sum becomes
two custom calls: `start` hands rows over and returns at once, `done` waits for what became of them. Where the library
is absent `missing` says why."""

import contextlib
import contextvars
import ctypes
import itertools
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import podium
from podium.errors import UserError
from podium.processes.join import process_count, runtime
from podium.reduce.loads import Costs, best, candidates
from podium.reduce.routes import Route, Routes

LIBRARY_NAME = "libpodium_links.so"
_ABI = 2
_PATIENCE_MS = 600_000
SCATTER, GATHER, SUM = 1, 2, 3


def _load() -> tuple[Any, str]:
    """The library, or why there is none."""
    found = [path for path in (Path(place) / LIBRARY_NAME for place in podium.__path__) if path.exists()]
    if not found:
        return None, f"no {LIBRARY_NAME}; install a C++ compiler on Linux, then Podium again"
    try:
        library = ctypes.CDLL(str(found[0]))
        if (abi := library.podium_links_abi()) != _ABI:
            return None, f"{LIBRARY_NAME} has interface {abi}, this Podium needs {_ABI}; install Podium again"
        for name in ("start", "done"):
            handler = jax.ffi.pycapsule(getattr(library, f"podium_links_{name}"))
            jax.ffi.register_ffi_target(f"podium_links_{name}", handler, platform="cpu")
    except (OSError, AttributeError) as error:
        return None, f"{LIBRARY_NAME} cannot be loaded ({error}); install Podium again"
    return library, ""


_library, missing = _load()


@dataclass
class _Joined:
    """What this process knows of the others, and the numbers that it has given out. All processes trace the same
    programs in the same order, so they give the same numbers."""

    port: int = 0
    costs: Costs = field(default_factory=Costs)
    """What the connections were measured to cost."""
    local: tuple[int, ...] = ()
    """The devices that are this process's, numbered as the sums number them."""
    plans: dict[Any, int] = field(default_factory=dict)
    registered: set[tuple[int, int]] = field(default_factory=set)
    sites: dict[Any, int] = field(default_factory=dict)


_joined = _Joined()
_calls_ever = itertools.count(1 << 20)
_calls_of_step: contextvars.ContextVar[Iterator[int] | None] = contextvars.ContextVar("calls of a step", default=None)


def join(mesh: Mesh, axes: Sequence[str]) -> None:
    """Opens this process to the others of `mesh`, whose devices are numbered in the order of `axes`. All call it."""
    if missing:
        raise UserError(f"sums over sockets need the native library: {missing}; or use --set reduce=auto")
    order = [mesh.axis_names.index(name) for name in axes]
    rest = [k for k in range(mesh.devices.ndim) if k not in order]
    devices = mesh.devices.transpose(order + rest).reshape(-1)
    process = jax.process_index()
    _joined.local = tuple(k for k, device in enumerate(devices) if device.process_index == process)
    address = _own_address()
    if not _joined.port:
        _joined.port = _library.podium_links_listen(address.encode())
        if _joined.port < 0:
            _joined.port = 0
            raise UserError(f"sums over sockets cannot listen on {address}; use --set reduce=xla")
    secret, places = _exchanged(address, process)
    addresses = (ctypes.c_char_p * len(devices))(*(places[device.process_index][0].encode() for device in devices))
    ports = (ctypes.c_int * len(devices))(*(places[device.process_index][1] for device in devices))
    _library.podium_links_know(secret, len(devices), addresses, ports)


def _own_address() -> str:
    """The address from which this process reaches the coordinator: the others reach it there."""
    host, _, port = str(runtime().coordinator_address or "127.0.0.1:1").rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect((host.strip("[]"), int(port)))
        return str(towards.getsockname()[0])


def _exchanged(address: str, process: int) -> tuple[bytes, list[tuple[str, int]]]:
    """A secret that only the processes of this run have, and where each of them listens."""
    if process_count() == 1:
        return bytes(16), [(address, _joined.port)]
    client: Any = runtime().client
    if process == 0 and not any(key.endswith("/secret") for key, _ in client.key_value_dir_get("podium/links")):
        client.key_value_set("podium/links/secret", os.urandom(16).hex())
    client.key_value_set(f"podium/links/{process}", f"{address} {_joined.port}", allow_overwrite=True)
    secret = bytes.fromhex(client.blocking_key_value_get("podium/links/secret", _PATIENCE_MS))
    places = []
    for other in range(process_count()):
        there, port = client.blocking_key_value_get(f"podium/links/{other}", _PATIENCE_MS).split()
        places.append((there, int(port)))
    return secret, places


def port() -> int:
    """Where this process listens; 0 before it has joined."""
    return _joined.port


def use(costs: Costs) -> None:
    """From now on schedules are chosen for these costs. All processes must use the same."""
    _joined.costs = costs


def costs() -> Costs:
    """What schedules are chosen for."""
    return _joined.costs


def chosen_routes(rows: int, cols: int, size_bytes: int) -> Routes:
    """The routes for a sum of so many bytes of each host."""
    return candidates(rows, cols)[best(rows, cols, size_bytes, costs=_joined.costs)]


def leave() -> None:
    """Closes all connections. A sum that is under way ends with an error."""
    if not missing:
        _library.podium_links_close()


@contextlib.contextmanager
def one_step() -> Iterator[None]:
    """Calls that are traced inside are numbered from 0: equal steps of a program use the same connections."""
    before = _calls_of_step.set(itertools.count())
    try:
        yield
    finally:
        _calls_of_step.reset(before)


@dataclass(frozen=True)
class Call:
    """One sum, gather or scatter in a program: its tables and its connections."""

    site: int
    plan: int
    mode: int
    bf16: bool
    columns: int
    nodes: int
    pieces: int


def new_call(
    routes: Routes, shape: tuple[int, int, int], *, mode: int, bf16: bool, columns: int, pieces: int = 1
) -> Call:
    """The next call of a program that sums rows of so many columns over (rows, cols) hosts of so many lanes, along each
    route in pieces that follow each other."""
    plan = _joined.plans.setdefault((routes, shape), len(_joined.plans))
    _register(plan, routes, shape)
    key = next(_calls_of_step.get() or _calls_ever), plan, mode, bf16, columns, pieces
    site = _joined.sites.setdefault(key, len(_joined.sites))
    return Call(site, plan, mode, bf16, columns, shape[0] * shape[1], pieces)


def _register(plan: int, routes: Routes, shape: tuple[int, int, int]) -> None:
    rows, cols, lanes = shape
    nodes = rows * cols
    for device in _joined.local:
        if (plan, device) in _joined.registered or device >= nodes * lanes:
            continue
        _joined.registered.add((plan, device))
        found = routes(rows, cols)
        own, moves = tables(found, device % nodes, first=device // nodes * nodes)
        sizes = np.array([nodes, device % nodes, *moves.shape[:2]], np.int32)
        shares = np.array([route.share for route in found], np.int32)
        places = (array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)) for array in (sizes, shares, own, moves))
        _library.podium_links_plan(plan, device, *places)


def tables(routes: Sequence[Route], node: int, *, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """int32 [routes, nodes]: where each route has the row of each node; int32 [routes, ticks, 6]: to whom this node
    sends, from which row and how many, and from whom it receives which. Devices are nodes counted from `first`."""
    ticks = max(len(route.ticks) for route in routes)
    moves = np.tile(np.array([-1, 0, 0, -1, 0, 0], np.int32), (len(routes), ticks, 1))
    for r, route in enumerate(routes):
        for t, tick in enumerate(route.ticks):
            if tick.to[node] >= 0:
                moves[r, t, :3] = first + tick.to[node], tick.start[node], tick.rows[node]
            for source in np.flatnonzero(tick.to == node):
                moves[r, t, 3:] = first + source, tick.start[source], tick.rows[source]
    return np.ascontiguousarray([route.own for route in routes], np.int32), np.ascontiguousarray(moves)


def start(call: Call, rows: jax.Array, device: jax.Array) -> jax.Array:
    """Hands over rows; gives a token."""
    numbers = np.array([call.site, call.plan, call.mode, int(call.bf16), call.columns, call.pieces], np.int64)
    return _custom_call("start", 1, rows, device, numbers=numbers)


def done(call: Call, device: jax.Array, *after: jax.Array) -> jax.Array:
    """What came of a sum. Waits for it when everything in `after` is there."""
    size = call.columns if call.mode == SCATTER else call.columns * call.nodes
    return _custom_call("done", size, device, *after, numbers=np.array([call.site], np.int64))


def _custom_call(name: str, size: int, *operands: jax.Array, numbers: np.ndarray) -> jax.Array:
    like = jax.typeof(operands[0])
    sharding = NamedSharding(like.sharding.mesh, PartitionSpec())
    result = jax.ShapeDtypeStruct((size,), jnp.float32, sharding=sharding, manual_axis_type=like.mat)
    return jax.ffi.ffi_call(f"podium_links_{name}", result, has_side_effect=True)(*operands, numbers=numbers)
