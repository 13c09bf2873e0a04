"""Who sends which rows to whom at each tick: the reductions written down as NumPy tables, with no device in sight. A
*route* is a list of such ticks. Most number the nodes of a torus as a grid P×Q; a node sums along the first axis of
its route, then along the second, always towards the next higher position. A ring and the two colours of the paper
(`colours`) are nothing but different grids. `swing` and `woven` have routes of other kinds. `routed` and `sockets` run
these tables, `picture` draws them; played backwards they are the all-gather."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import gcd

import numpy as np

Grid = np.ndarray  # int [P, Q, …]: node numbers, row-major in the torus: node = row * cols + col


@dataclass(frozen=True)
class Tick:
    """One tick of one route: node k sends `rows[k]` rows, from row `start[k]`, to node `to[k]`, which adds them to its
    own. A node that sends nothing has no target (−1) and no rows.

    A row is the data of one owner; each route has its own order of rows."""

    to: np.ndarray  # int [nodes]
    start: np.ndarray  # int [nodes]
    rows: np.ndarray  # int [nodes]


@dataclass(frozen=True)
class Route:
    """A reduce-scatter, tick by tick. At its end node k holds the whole sum of row `own[k]`."""

    ticks: tuple[Tick, ...]
    own: np.ndarray  # int [nodes]
    share: int = 1  # how much of the data goes along this route, beside the shares of the others


Routes = Callable[[int, int], tuple[Route, ...]]  # (rows, cols) -> the routes among which the data is shared


def edges(routes: Sequence["Route | Slot"], columns: int) -> list[int]:
    """Where the columns of each route, or of each chain, begin, and where the last one's end."""
    before = list(accumulate((route.share for route in routes), initial=0))
    return [columns * part // before[-1] for part in before]


def ring_routes(*shape: int) -> tuple[Route, ...]:
    """One ring through all nodes in one direction, each hop one link of the torus."""
    rows, cols = shape
    return (along(hamiltonian_cycle(rows, cols)[:, None]),)


def hamiltonian_cycle(rows: int, cols: int) -> np.ndarray:
    """All nodes, each next to the one before and the last next to the first.

    Walk every line wholly, then step to the next line. A line walked rightwards ends one column to the left of where
    it began (it wraps), one walked leftwards one to the right; the cycle closes when the steps cancel modulo the
    line's length. With an even number of lines half go either way; with both numbers odd, as many more go
    rightwards than leftwards as a line is long."""
    nodes = np.arange(rows * cols).reshape(rows, cols)
    if rows % 2 and (cols % 2 == 0 or cols > rows):
        nodes = nodes.T
    lines, length = nodes.shape
    surplus = 0 if lines % 2 == 0 else length
    rightwards = (lines + surplus) // 2
    path, column = [], 0
    for line in range(lines):
        step = 1 if line < rightwards else -1
        path += [nodes[line, (column + step * k) % length] for k in range(length)]
        column -= step
    return np.array(path)


def along(grid: Grid, closed: Sequence[bool] = (), share: int = 1) -> Route:
    """Sums along the first axis of a grid, then along the second, and so on, each a ring reduce-scatter. The rows
    stand in the order of the grid: node grid[p, q] ends with row p * Q + q.

    An axis that is not `closed` is a line: each row comes to its owner from both ends, by the very ticks of a ring, of
    which only those that would go around are left out. There a tick forwards and one backwards belong together."""
    place = np.indices(grid.shape).reshape(grid.ndim, -1)
    own = np.argsort(grid, axis=None)  # by node, as all that follows
    ticks, rows = [], grid.size
    for axis, (length, ring) in enumerate(zip(grid.shape, closed or (True,) * grid.ndim, strict=True)):
        before, rows = np.arange(grid.size) // rows * rows, rows // length  # where this node's part begins; its rows
        for t in range(length - 1):
            for step in (1,) if ring else (1, -1):
                at = place[axis] if step == 1 else length - 1 - place[axis]
                target = step * (at - 1 - t) % length if step == 1 else length - 1 - (at - 1 - t) % length
                sends = np.full(grid.size, True) if ring else at <= t
                to = np.where(sends, np.roll(grid, -step, axis).reshape(-1), -1)
                start = np.where(sends, before + target * rows, 0)
                ticks.append(Tick(to[own], start[own], np.where(sends, rows, 0)[own]))
    return Route(tuple(ticks), own, share)


@dataclass(frozen=True)
class Step:
    """One tick of all devices, each lane on its own route: a single permutation that keeps all links of a host busy.

    Device d = lane * nodes + node sends `rows[d]` rows from `send[d]`; what it receives, `received[d]` rows, belongs
    at `receive[d]`."""

    pairs: tuple[tuple[int, int], ...]  # (source device, destination device)
    send: np.ndarray  # int [devices]
    rows: np.ndarray  # int [devices]
    receive: np.ndarray  # int [devices]
    received: np.ndarray  # int [devices]


@dataclass(frozen=True)
class Slot:
    """One chain of steps, each waiting for the one before. At its end device d holds the sum of row `own[d]`, which
    belongs, in the order of nodes, to another device of the lane: `home` takes it there."""

    steps: tuple[Step, ...]
    own: np.ndarray  # int [devices]
    home: tuple[tuple[int, int], ...]  # (device that holds the sum, device whose node number is the row's)
    share: int  # of the data, beside the other chains'


@lru_cache(maxsize=64)
def slots(routes: Routes, rows: int, cols: int, *, lanes: int) -> tuple[Slot, ...]:
    """The chains that run side by side: with as many lanes as routes there is one, and each lane goes its own way; a
    single lane needs one chain per route."""
    found = routes(rows, cols)
    chains = len(found) // gcd(len(found), lanes)
    return tuple(_slot([found[(lane * chains + k) % len(found)] for lane in range(lanes)]) for k in range(chains))


def _slot(route_of_lane: list[Route]) -> Slot:
    nodes = route_of_lane[0].own.size
    steps = tuple(_step(list(together)) for together in zip(*(r.ticks for r in route_of_lane), strict=True))
    own = np.concatenate([route.own for route in route_of_lane])
    home = tuple((d, d // nodes * nodes + int(row)) for d, row in enumerate(own))
    return Slot(steps, own, home, sum(route.share for route in route_of_lane))


def _step(tick_of_lane: list[Tick]) -> Step:
    nodes = tick_of_lane[0].to.size
    to = np.concatenate([np.where(tick.to < 0, -1, lane * nodes + tick.to) for lane, tick in enumerate(tick_of_lane)])
    send = np.concatenate([tick.start for tick in tick_of_lane])
    rows = np.concatenate([tick.rows for tick in tick_of_lane])
    sends = np.flatnonzero(to >= 0)
    receive, received = np.zeros_like(send), np.zeros_like(rows)
    receive[to[sends]], received[to[sends]] = send[sends], rows[sends]
    return Step(tuple((int(d), int(to[d])) for d in sends), send, rows, receive, received)
