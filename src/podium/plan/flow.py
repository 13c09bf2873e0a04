"""A link-by-link simulation without a common tick, for tori of any number of axes, whole or with holes: a message
leaves when what it sends has come and its link is free, and a link sends one message at a time, in the order of the
schedule. A message over several links takes each of them as its first byte gets there. It plays the tables of
`reduce.routes` and `reduce.woven`; `pieces` of a sum follow each other.
Like `simulate` it leaves out adding, memory and packets."""

import heapq
import math
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from podium.plan.machines import Link
from podium.plan.simulate import Simulated
from podium.reduce.colours import colours, torus_routes
from podium.reduce.routes import Route, Tick
from podium.reduce.woven import Woven, living_nodes, weave


def woven_seconds(torus: Woven, message_bytes: float, *, link: Link) -> Simulated:
    """An all-reduce over what is left of a torus, by woven routes. A row waits for nothing but itself and its links."""
    routes = weave(torus)
    nodes = living_nodes(torus).size
    row_seconds = message_bytes / len(routes) / nodes / link.bandwidth
    free = np.zeros((nodes, 2 * len(torus.shape)))
    busy, end = np.zeros_like(free), 0.0
    ways = _Ways(torus.shape, living_nodes(torus))
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
    """An all-reduce by as many colours as axes, cut into pieces."""
    wraps = wraps or (True,) * len(shape)
    routes, nodes = torus_routes(*shape, closed=wraps), math.prod(shape)
    row_seconds = message_bytes / pieces / nodes / link.bandwidth / sum(route.share for route in routes)
    ways = _Ways(shape, np.arange(nodes))
    links = _Links(np.zeros((nodes, 2 * len(shape))), np.zeros((nodes, 2 * len(shape))), link.hop_seconds)
    # Each piece sets out as the links have had time for those before it: all at once, they would pass the first axis
    # together and leave the second one idle meanwhile.
    apart = bound_seconds(shape, message_bytes, link=Link(link.bandwidth, 0.0), wraps=wraps) / pieces
    ready = {(piece, r): np.full(nodes, piece * apart) for piece in range(pieces) for r in range(len(routes))}
    scripts = _scripts(shape, wraps, routes)
    queue = [(piece * apart, 0, piece, route) for piece, route in ready if scripts[route]]
    heapq.heapify(queue)
    while queue:
        _, number, piece, route = heapq.heappop(queue)
        of_piece = ready[piece, route]
        before = of_piece.copy()
        for source, target, rows in scripts[route][number]:
            came = ways.send(_Sent(source, target, rows * routes[route].share * row_seconds), before[source], links)
            of_piece[target] = np.maximum(of_piece[target], came)
        if number + 1 < len(scripts[route]):
            heapq.heappush(queue, (float(of_piece.max()), number + 1, piece, route))
    end = max(float(of.max()) for of in ready.values())
    return _simulated(end, links.busy)


_Script = list[list[tuple[np.ndarray, np.ndarray, int]]]
"""What sets out together, there and back: messages (from whom, to whom, rows)."""


def _scripts(shape: tuple[int, ...], wraps: tuple[bool, ...], routes: Sequence[Route]) -> list[_Script]:
    """Along an open axis, the ticks both ways set out together."""
    found = []
    for number, route in enumerate(routes):
        ticks = iter(route.ticks)
        together = [
            list(islice(ticks, 1 if wraps[axis] else 2))
            for axis in colours(len(shape))[number // 2]
            for _ in range(shape[axis] - 1)
        ]
        there, back = (
            [[(*_messages(tick, is_back), int(tick.rows.max())) for tick in both] for both in together]
            for is_back in (False, True)
        )
        found.append(there + back[::-1])
    return found


def bound_seconds(shape: tuple[int, ...], message_bytes: float, *, link: Link, wraps: tuple[bool, ...] = ()) -> float:
    """What all links together need for the least that can be sent, and the hops of a schedule along all axes. An open
    axis has a link less in each of its lines."""
    nodes = math.prod(shape)
    links = 0.0  # of a node, each one way
    for length, ring in zip(shape, wraps or (True,) * len(shape), strict=True):
        links += 2.0 if ring and length > 2 else 2 * (length - 1) / length
    hops = 2 * sum(length - 1 for length in shape)
    return hops * link.hop_seconds + 2 * (nodes - 1) / nodes * message_bytes / (links * link.bandwidth)


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
    """Which link a message takes to a neighbour, on a torus of which only `living` may be left."""

    def __init__(self, shape: tuple[int, ...], living: np.ndarray) -> None:
        self._shape = shape
        self._places = np.stack(np.unravel_index(living, shape))

    def direction(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The link of its sender that each message takes: 2 × axis, and 1 more if backwards."""
        moved = self._places[:, target] - self._places[:, source]
        axis = np.abs(moved).argmax(0)
        lengths, step = np.array(self._shape)[axis], moved[axis, np.arange(source.size)]
        return 2 * axis + (step % lengths != 1)

    def send(self, message: _Sent, ready: np.ndarray, links: _Links) -> np.ndarray:
        """When messages arrive that may leave when `ready`."""
        at = message.source, self.direction(message.source, message.target)
        links.free[at] = np.maximum(ready, links.free[at]) + message.seconds
        links.busy[at] += message.seconds
        return links.free[at] + links.hop_seconds
