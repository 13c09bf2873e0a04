"""A link-by-link simulation without a common tick, for tori of any number of axes, whole or with holes: a message
leaves when what it sends has come and its link is free, and a link sends one message at a time, in the order of the
schedule. A message over several links takes each of them as its first byte gets there. It plays the tables of
`reduce.routes` and `reduce.woven`; `pieces` of a sum follow each other, and `shares` says how much of it goes along
which route. Like `simulate` it leaves out adding, memory and packets."""

import heapq
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from podium.plan.machines import Link
from podium.plan.simulate import Simulated
from podium.reduce.routes import Tick, torus_routes
from podium.reduce.woven import Woven, living_nodes, weave

_OPEN = 2.0  # the last hop of a ring goes back over the whole line


def woven_seconds(torus: Woven, message_bytes: float, *, link: Link) -> Simulated:
    """An all-reduce over what is left of a torus, by woven routes. A row waits for nothing but itself and its links."""
    routes = weave(torus)
    nodes = living_nodes(torus).size
    row_seconds = message_bytes / len(routes) / nodes / link.bandwidth
    free = np.zeros((nodes, 2 * len(torus.shape)))
    busy, end = np.zeros_like(free), 0.0
    ways = _Ways(torus.shape, (True,) * len(torus.shape), living_nodes(torus))
    ready = [np.zeros((nodes, nodes)) for _ in routes]  # when a node has the sum of a row so far
    for back in (False, True):
        if back:
            ready = [np.where(np.eye(nodes, dtype=bool), of_route, 0.0) for of_route in ready]
        ticks = list(zip(*(route.ticks for route in routes), strict=True))
        for together in reversed(ticks) if back else ticks:
            for of_route, tick in zip(ready, together, strict=True):
                source, target = _messages(tick, back)
                rows = tick.start[target if back else source]
                at = source, ways.direction(source, target)
                sent = np.maximum(of_route[source, rows], free[at]) + row_seconds
                free[at] = sent
                busy[at] += row_seconds
                came = sent + link.hop_seconds
                of_route[target, rows] = came if back else np.maximum(of_route[target, rows], came)
                end = max(end, float(came.max(initial=0.0)))
    return _simulated(end, busy)


def _simulated(end: float, busy: np.ndarray) -> Simulated:
    return Simulated(end, float(busy.sum() / (np.count_nonzero(busy) * end)) if end else 0.0)


def torus_seconds(
    shape: tuple[int, ...], message_bytes: float, *, link: Link, wraps: tuple[bool, ...] = (), pieces: int = 16
) -> Simulated:
    """An all-reduce by as many colours as axes, in shares that load all links alike, cut into pieces."""
    wraps = wraps or (True,) * len(shape)
    routes, nodes = torus_routes(*shape), math.prod(shape)
    shares = np.repeat(colour_shares(shape, wraps), 2) / 2
    ways = _Ways(shape, wraps, np.arange(nodes))
    links = _Links(np.zeros((nodes, 2 * len(shape))), np.zeros((nodes, 2 * len(shape))), link.hop_seconds)
    # Each piece sets out as the links have had time for those before it: all at once, they would pass the first axis
    # together and leave the second one idle meanwhile.
    apart = bound_seconds(shape, message_bytes, link=Link(link.bandwidth, 0.0), wraps=wraps) / pieces
    ready = {(piece, r): np.full(nodes, piece * apart) for piece in range(pieces) for r in range(len(routes))}
    scripts = [[(tick, False) for tick in r.ticks] + [(tick, True) for tick in r.ticks[::-1]] for r in routes]
    queue = [(piece * apart, 0, piece, route) for piece, route in ready if scripts[route]]
    heapq.heapify(queue)
    while queue:
        _, number, piece, route = heapq.heappop(queue)
        tick, back = scripts[route][number]
        source, target = _messages(tick, back)
        seconds = int(tick.rows.max()) * shares[route] * message_bytes / pieces / nodes / link.bandwidth
        came = ways.send(_Sent(source, target, seconds), ready[piece, route][source], links)
        ready[piece, route][target] = np.maximum(ready[piece, route][target], came)
        if number + 1 < len(scripts[route]):
            heapq.heappush(queue, (float(ready[piece, route].min()), number + 1, piece, route))
    end = max(float(of.max()) for of in ready.values())
    return _simulated(end, links.busy)


def bound_seconds(shape: tuple[int, ...], message_bytes: float, *, link: Link, wraps: tuple[bool, ...] = ()) -> float:
    """What the links of the node with fewest of them need, and the hops of a schedule along all axes."""
    nodes = math.prod(shape)
    links = sum(
        0 if n == 1 else 1 if n == 2 or not ring else 2
        for n, ring in zip(shape, wraps or (True,) * len(shape), strict=True)
    )
    hops = 2 * sum(length - 1 for length in shape)
    return hops * link.hop_seconds + 2 * (nodes - 1) / nodes * message_bytes / (links * link.bandwidth)


def colour_shares(shape: tuple[int, ...], wraps: Sequence[bool]) -> np.ndarray:
    """How much of a sum each colour takes, in the order of `colour_grids`, so that the links of all axes carry alike.
    Where no such shares are, as with axes of one node, all take the same."""
    axes = len(shape)
    loads = np.zeros((axes, axes))  # [axis, colour]: a link's part of what the colour sums
    for colour, first in enumerate(reversed(range(axes))):
        left = 1.0
        for axis in [(first + k) % axes for k in range(axes)]:
            length = shape[axis]
            links = 1 if length == 2 else 2
            loads[axis, colour] = left * (length - 1) / length / links * (1 if wraps[axis] or length < 3 else _OPEN)
            left /= length
    equal = np.full(axes, 1 / axes)
    system = np.vstack([loads[:-1] - loads[1:], np.ones(axes)])
    if abs(np.linalg.det(system)) < 1e-12:
        return equal
    shares = np.linalg.solve(system, np.eye(axes)[-1])
    return shares if (shares >= -1e-9).all() else equal


def _messages(tick: Tick, back: bool) -> tuple[np.ndarray, np.ndarray]:
    """(from whom, to whom); on the way back the same pairs the other way round."""
    source = np.flatnonzero(tick.to >= 0)
    return (tick.to[source], source) if back else (source, tick.to[source])


class _Sent(NamedTuple):
    """Messages that take a link so many seconds each."""

    source: np.ndarray
    target: np.ndarray
    seconds: float


class _Links(NamedTuple):
    """When each link is free, and for how long it has been busy."""

    free: np.ndarray  # [node, 2 × axis + backwards]: from when on
    busy: np.ndarray
    hop_seconds: float


class _Ways:
    """Over which links messages go between neighbours of a torus, of which only `living` may be left."""

    def __init__(self, shape: tuple[int, ...], wraps: tuple[bool, ...], living: np.ndarray) -> None:
        self._shape, self._wraps = shape, wraps
        self._places = np.stack(np.unravel_index(living, shape))

    def direction(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The link of its sender that each message takes: 2 × axis, and 1 more if backwards."""
        axis, forward, _ = self._of(source, target)
        return 2 * axis + ~forward

    def _of(self, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        moved = self._places[:, target] - self._places[:, source]
        axis = np.abs(moved).argmax(0)
        lengths, step = np.array(self._shape)[axis], moved[axis, np.arange(source.size)]
        around = (np.abs(step) > 1) & ~np.array(self._wraps)[axis]
        return axis, step % lengths == 1, around

    def send(self, message: _Sent, ready: np.ndarray, links: _Links) -> np.ndarray:
        """When messages arrive that may leave when `ready`."""
        source, target, seconds = message
        free, busy, hop = links
        axis, forward, around = self._of(source, target)
        at = source[~around], (2 * axis + ~forward)[~around]
        came = np.empty(source.size)
        free[at] = np.maximum(ready[~around], free[at]) + seconds
        busy[at] += seconds
        came[~around] = free[at] + hop
        for k in np.flatnonzero(around):
            line = _line(int(source[k]), int(target[k]), math.prod(self._shape[axis[k] + 1 :]))
            on = line, np.full(line.size, 2 * axis[k] + (target[k] < source[k]))
            steps = hop * np.arange(line.size)
            starts = np.maximum.accumulate(np.maximum(free[on], ready[k]) - steps) + steps
            free[on] = starts + seconds
            busy[on] += seconds
            came[k] = starts[-1] + seconds + hop
        return came


@lru_cache(maxsize=4096)
def _line(source: int, target: int, stride: int) -> np.ndarray:
    """The nodes from one end of a line to the one before the other end."""
    return np.arange(source, target, stride if target > source else -stride)
