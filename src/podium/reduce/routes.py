"""Who sends which rows to whom at each tick: the reductions written down as NumPy tables, with no device in sight. A
*route* numbers the nodes of a torus as a grid P×Q; a node sums along the first axis of its route, then along the
second, always towards the next higher position. A ring, the two colours of the paper and both directions of each are
nothing but different grids. `routed` runs these tables, `picture` draws them; played backwards they are the
all-gather."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

Grid = np.ndarray  # int [P, Q]: node numbers, row-major in the torus: node = row * cols + col
Routes = Callable[[int, int], tuple[Grid, ...]]  # (rows, cols) -> the grids that share the data equally


def torus_routes(rows: int, cols: int) -> tuple[Grid, ...]:
    """Two colours (X then Y, Y then X), each in both directions: four routes that leave a node by four different
    links."""
    y_first = np.arange(rows * cols).reshape(rows, cols)
    x_first = y_first.T
    return x_first, x_first[::-1, ::-1], y_first, y_first[::-1, ::-1]


def ring_routes(rows: int, cols: int) -> tuple[Grid, ...]:
    """One ring through all nodes in one direction, each hop one link of the torus."""
    return (hamiltonian_cycle(rows, cols)[:, None],)


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


@dataclass(frozen=True)
class Tick:
    """One tick of one route: node k sends `rows` rows, from row `start[k]`, to node `to[k]`, which adds them to its
    own.

    A row is the data of one owner; the rows of a route stand in the order of its grid."""

    to: np.ndarray  # int [nodes]
    start: np.ndarray  # int [nodes]
    rows: int


def ticks(grid: Grid) -> list[Tick]:
    """The reduce-scatter of one route. At its end node grid[p, q] holds the whole sum of row p * Q + q."""
    length, width = grid.shape
    p, q = np.indices(grid.shape)

    def tick(to: np.ndarray, start: np.ndarray, rows: int) -> Tick:
        by_node = np.argsort(grid, axis=None)
        return Tick(to.reshape(-1)[by_node], start.reshape(-1)[by_node], rows)

    first = [tick(np.roll(grid, -1, 0), (p - 1 - t) % length * width, width) for t in range(length - 1)]
    second = [tick(np.roll(grid, -1, 1), p * width + (q - 1 - t) % width, 1) for t in range(width - 1)]
    return first + second


@dataclass(frozen=True)
class Step:
    """One tick of all devices, each lane on its own route: a single permutation that keeps all links of a host busy.

    Device d = lane * nodes + node sends `rows[d]` rows from `send[d]`; what it receives belongs at `receive[d]`."""

    pairs: tuple[tuple[int, int], ...]  # (source device, destination device)
    send: np.ndarray  # int [devices]
    receive: np.ndarray  # int [devices]
    rows: np.ndarray  # int [devices]


@dataclass(frozen=True)
class Slot:
    """One chain of steps, each waiting for the one before. At its end device d holds the sum of row `own[d]`, which
    belongs, in the order of nodes, to another device of the lane: `home` takes it there."""

    steps: tuple[Step, ...]
    own: np.ndarray  # int [devices]
    home: tuple[tuple[int, int], ...]  # (device that holds the sum, device whose node number is the row's)


@lru_cache(maxsize=64)
def slots(routes: Routes, rows: int, cols: int, *, lanes: int) -> tuple[Slot, ...]:
    """The chains that run side by side: with as many lanes as routes there is one, and each lane goes its own way; a
    single lane needs one chain per route."""
    grids = routes(rows, cols)
    chains = len(grids) // gcd(len(grids), lanes)
    return tuple(_slot([grids[(lane * chains + k) % len(grids)] for lane in range(lanes)]) for k in range(chains))


def _slot(grid_of_lane: list[Grid]) -> Slot:
    nodes = grid_of_lane[0].size
    steps = tuple(_step(list(together)) for together in zip(*map(ticks, grid_of_lane), strict=True))
    own = np.concatenate([np.argsort(grid, axis=None) for grid in grid_of_lane])
    home = tuple((d, d // nodes * nodes + int(row)) for d, row in enumerate(own))
    return Slot(steps, own, home)


def _step(tick_of_lane: list[Tick]) -> Step:
    nodes = tick_of_lane[0].to.size
    to = np.concatenate([lane * nodes + tick.to for lane, tick in enumerate(tick_of_lane)])
    send = np.concatenate([tick.start for tick in tick_of_lane])
    receive = np.empty_like(send)
    receive[to] = send
    rows = np.repeat([tick.rows for tick in tick_of_lane], nodes)
    return Step(tuple((d, int(t)) for d, t in enumerate(to)), send, receive, rows)
