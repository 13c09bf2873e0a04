"""A link-level simulation of Podium's own schedules: every message waits for its data and for the sender's last
message, shares each link of its way with the other messages of its tick, and takes one hop's latency per link; the
result is when the last one arrives. It plays the very tables that `reduce.routed` runs, on a torus or, where an
axis has no wrap-around links, on a mesh whose last hop goes back over the whole line. It leaves out adding, memory
and packets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from podium.plan.machines import Link
from podium.reduce.colours import torus_routes
from podium.reduce.routes import Route, Routes, ring_routes

_FORWARD, _BACKWARD = 0, 1


def one_colour_routes(rows: int, cols: int) -> tuple[Route, ...]:
    """2-D without the second colour: X then Y, both directions."""
    return torus_routes(rows, cols)[:2]


ALGORITHMS: dict[str, Routes] = {"ring": ring_routes, "2-D": one_colour_routes, "two-colour": torus_routes}


@dataclass(frozen=True)
class Simulated:
    seconds: float
    link_use: float  # mean share of the time that a link is busy


@dataclass(frozen=True)
class _Wires:
    """The paths of one tick's messages: those over one link, and those that go back over a whole line."""

    direct: np.ndarray  # int [messages]: senders
    direct_link: np.ndarray  # int [messages]
    around: np.ndarray  # int [messages]: senders
    around_hops: np.ndarray  # int [messages]: links on the way of each
    around_links: np.ndarray  # int [sum of around_hops]: those links, one message after the other


@dataclass(frozen=True)
class _Messages:
    """What one route sends in one tick: from every node to node `to[node]`, each so many seconds of a link."""

    paths: _Wires
    to: np.ndarray  # int [nodes]
    seconds: float


def simulate(
    algorithm: Routes,
    shape: tuple[int, int],
    message_bytes: float,
    *,
    link: Link,
    wraps: tuple[bool, bool] = (True, True),
) -> Simulated:
    """An all-reduce of `message_bytes` over rows × cols nodes, by routes in which all send alike; `wraps` says
    which axes (down, along) are rings."""
    rows, cols = shape
    routes = [route.ticks for route in algorithm(rows, cols)]
    row_seconds = message_bytes / len(routes) / (rows * cols) / link.bandwidth
    wires = _cached(partial(_wires, shape=shape, wraps=wraps))
    ready = [np.zeros(rows * cols) for _ in routes]  # when each node has what it sends next, by route
    busy = np.zeros(rows * cols * 4)  # for how long each link (node, axis, direction) sends
    for backwards in (False, True):
        for together in zip(*(route[::-1] if backwards else route for route in routes), strict=True):
            # A permutation's argsort is its inverse: the all-gather goes back along every link.
            targets = [np.argsort(tick.to) if backwards else tick.to for tick in together]
            messages = [
                _Messages(wires(to), to, float(tick.rows.max()) * row_seconds)
                for to, tick in zip(targets, together, strict=True)
            ]
            _play(messages, ready, busy, hop_seconds=link.hop_seconds)
    # No schedule ends before its busiest link does, however its messages of different ticks meet there.
    total = max(*(float(of_route.max()) for of_route in ready), float(busy.max()))
    return Simulated(total, float(busy.sum() / (np.count_nonzero(busy) * total)) if total else 0.0)


def _play(messages: list[_Messages], ready: list[np.ndarray], busy: np.ndarray, *, hop_seconds: float) -> None:
    """One tick of every route, which moves `ready` and `busy` on."""
    load = np.zeros_like(busy)
    for of_route in messages:
        load[of_route.paths.direct_link] += of_route.seconds
        np.add.at(load, of_route.paths.around_links, of_route.seconds)
    busy += load
    for route, of_route in enumerate(messages):
        paths, to = of_route.paths, of_route.to
        sent, hops = ready[route].copy(), np.ones(to.size)
        sent[paths.direct] += load[paths.direct_link]
        if len(paths.around):
            starts = np.cumsum(paths.around_hops) - paths.around_hops
            sent[paths.around] += np.maximum.reduceat(load[paths.around_links], starts)
            hops[paths.around] = paths.around_hops
        received = np.empty_like(sent)
        received[to] = sent + hops * hop_seconds
        ready[route] = np.maximum(received, sent)


def _wires(to: np.ndarray, shape: tuple[int, int], wraps: tuple[bool, bool]) -> _Wires:
    """The links from each node to its target, which is its neighbour on the torus."""
    nodes = np.arange(to.size)
    place, target = np.stack(np.divmod(nodes, shape[1])), np.stack(np.divmod(to, shape[1]))
    axis = np.where(place[0] == target[0], 1, 0)
    at, goal = np.where(axis == 0, place[0], place[1]), np.where(axis == 0, target[0], target[1])
    length = np.array(shape)[axis]
    forward = (goal - at) % length == 1  # in a ring of two every hop is forward: one link is all there is
    crosses = np.abs(goal - at) > 1
    around = crosses & ~np.array(wraps)[axis]
    direct = nodes[~around]
    direction = np.where(forward, _FORWARD, _BACKWARD)
    direct_link = _link(direct, axis[direct], direction[direct])
    senders = nodes[around]
    around_links = [_back(int(node), int(axis[node]), shape) for node in senders]
    return _Wires(direct, direct_link, senders, length[senders] - 1, np.concatenate(around_links or [np.zeros(0, int)]))


def _back(node: int, axis: int, shape: tuple[int, int]) -> np.ndarray:
    """The links from one end of a line, which is `node`, to its other end."""
    line = _line(node, axis, shape)
    inner, direction = (line[:-1], _FORWARD) if node == line[0] else (line[:0:-1], _BACKWARD)
    return _link(inner, np.full(len(inner), axis), np.full(len(inner), direction))


def _line(node: int, axis: int, shape: tuple[int, int]) -> np.ndarray:
    """All nodes of the line along `axis` through `node`."""
    row, col = divmod(node, shape[1])
    grid = np.arange(shape[0] * shape[1]).reshape(shape)
    return grid[:, col] if axis == 0 else grid[row]


def _link(node: np.ndarray, axis: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return node * 4 + axis * 2 + direction


def _cached(wires: Callable[..., _Wires]) -> Callable[[np.ndarray], _Wires]:
    """A schedule has few distinct permutations, and thousands of ticks."""
    known: dict[bytes, _Wires] = {}

    def look_up(to: np.ndarray) -> _Wires:
        key = to.tobytes()
        if key not in known:
            known[key] = wires(to)
        return known[key]

    return look_up
