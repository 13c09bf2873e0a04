"""What a schedule asks of the links: how many rows cross each link of a torus at each tick, over shortest ways, along
the last axis first. From that comes the time of a sum for given latency and bandwidth, and the choice among schedules
for each size."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from podium.reduce.colours import colour_shares, torus_routes
from podium.reduce.routes import Routes, Tick
from podium.reduce.swing import is_swinging, swing_routes
from podium.reduce.woven import Woven, woven_routes

_WOVEN_NODES = 64  # beyond, its many ticks cost more than they save
_ROW_BYTES = 1 << 16  # of a piece, at least: its messages are a quarter of that


@dataclass(frozen=True)
class Costs:
    """What a tick of a sum takes before its first byte and for each further one. Measured at a run's start; until then
    those of a fast Ethernet."""

    tick_seconds: float = 1e-4
    bytes_per_second: float = 1.25e9


@dataclass(frozen=True)
class Load:
    """A schedule's ticks, there and back, and what its busiest links carry, as parts of the whole buffer's bytes."""

    ticks: int
    hops: int
    messages: float  # over the busiest link of each tick, added up
    busiest: float  # over the busiest link

    def seconds(self, size_bytes: float, costs: Costs, *, pieces: int = 1) -> float:
        """In one piece each tick waits for its busiest link; many of them leave no link idle that has work."""
        carried = self.busiest + (self.messages - self.busiest) / pieces
        return self.hops * costs.tick_seconds + carried * size_bytes / costs.bytes_per_second


@lru_cache(maxsize=64)
def load(routes: Routes, rows: int, cols: int) -> Load:
    """The loads of an all-reduce."""
    found = routes(rows, cols)
    shares = sum(route.share for route in found)
    hops, messages, total = 0, 0.0, np.zeros((rows * cols, 4))
    for t in range(max(len(route.ticks) for route in found)):
        carried = np.zeros((rows * cols, 4))
        farthest = 1
        for route in found:
            if t < len(route.ticks):
                of_route, far = _carried(route.ticks[t], (rows, cols))
                carried += of_route * (route.share / shares)
                farthest = max(farthest, far)
        hops += farthest
        messages += carried.max()
        total += carried
    of_all = 2 / (rows * cols)
    # The way back goes over the same links the other way, and both ways of a colour are alike.
    return Load(2 * max(len(route.ticks) for route in found), 2 * hops, messages * of_all, float(total.max()) * of_all)


def _carried(sent: Tick, shape: tuple[int, int]) -> tuple[np.ndarray, int]:
    """The rows of one tick on each link, and the most links that one of its messages crosses."""
    carried, farthest = np.zeros((sent.to.size, 4)), 0
    for node in np.flatnonzero(sent.to >= 0):
        way = path(int(node), int(sent.to[node]), shape)
        farthest = max(farthest, len(way))
        for place, link in way:
            carried[place, link] += sent.rows[node]
    return carried, farthest


def path(node: int, target: int, shape: Sequence[int]) -> list[tuple[int, int]]:
    """The links of the shortest way, as (node, 2 * axis + direction), along the last axis first; a tie goes forward. In
    a ring of two, forward is the only link there is."""
    at, goal = list(np.unravel_index(node, shape)), np.unravel_index(target, shape)
    links = []
    for axis in reversed(range(len(shape))):
        length = shape[axis]
        step = 1 if (goal[axis] - at[axis]) % length * 2 <= length else -1
        while at[axis] != goal[axis]:
            links.append((int(np.ravel_multi_index(at, shape)), 2 * axis + (step < 0)))
            at[axis] = (at[axis] + step) % length
    return links


def pieces_of(routes: Routes, rows: int, cols: int, *, size_bytes: int) -> int:
    """In how many pieces, one following the other, a sum goes along each route: they keep the links at work while one
    waits for its next tick (seen, 16 MB on 4x4 hosts of 100 Mbit/s: 0.73 s in four pieces, 0.93 s in one). Colours of
    unequal shares also take unequal times for their axes, which more pieces fill."""
    if routes is woven_routes or isinstance(routes, Woven):
        most = 4
    elif routes is torus_routes:
        most = 4 if len(set(colour_shares((rows, cols)))) == 1 else 8
    else:
        return 1
    return max(1, min(most, size_bytes // (rows * cols) // _ROW_BYTES))


def candidates(rows: int, cols: int) -> dict[str, Routes]:
    """The schedules that are worth comparing on a torus."""
    found: dict[str, Routes] = {"torus": torus_routes}
    if is_swinging(rows, cols):
        found["swing"] = swing_routes
    if rows != cols and min(rows, cols) > 1 and rows * cols <= _WOVEN_NODES:
        found["woven"] = woven_routes
    return found


def best(rows: int, cols: int, size_bytes: int, *, costs: Costs) -> str:
    """The name of the schedule that takes least, by its loads."""
    found = candidates(rows, cols)
    if "swing" in found:
        swing = load(found["swing"], rows, cols)
        # Its messages are few and large, and none is passed on before it is whole: it pays while ticks count more than
        # bytes (seen, 16 MB on 4x4 hosts of 100 Mbit/s: 1.10 s, the two colours 0.91).
        if swing.messages * size_bytes / costs.bytes_per_second > swing.hops * costs.tick_seconds:
            del found["swing"]

    def seconds(name: str) -> float:
        routes = found[name]
        pieces = pieces_of(routes, rows, cols, size_bytes=size_bytes)
        return load(routes, rows, cols).seconds(size_bytes, costs, pieces=pieces)

    return min(found, key=seconds)
