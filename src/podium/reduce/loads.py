"""What a schedule asks of the links: how many rows cross each link of a torus at each tick, over shortest ways, along
the last axis first. From that comes the time of a sum for given latency and bandwidth, and the choice among schedules
for each size."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from podium.reduce.routes import Route, Routes, torus_routes
from podium.reduce.swing import is_swinging, swing_routes
from podium.reduce.woven import woven_routes

_WOVEN_NODES = 64  # a search of seconds from there on


@dataclass(frozen=True)
class Costs:
    """What a tick of a sum takes before its first byte and for each further one. Measured at a run's start; until then
    those of a fast Ethernet."""

    tick_seconds: float = 1e-4
    bytes_per_second: float = 1.25e9


@dataclass(frozen=True)
class Load:
    """A schedule's ticks, there and back, and the rows' worth of bytes that its busiest links carry in them."""

    ticks: int
    hops: int
    messages: float  # of the whole buffer's bytes, over the busiest link of each tick, added up

    def seconds(self, size_bytes: float, costs: Costs) -> float:
        return self.hops * costs.tick_seconds + self.messages * size_bytes / costs.bytes_per_second


@lru_cache(maxsize=64)
def load(routes: Routes, rows: int, cols: int) -> Load:
    """The loads of an all-reduce."""
    found = routes(rows, cols)
    hops, messages = 0, 0.0
    for t in range(max(len(route.ticks) for route in found)):
        carried = np.zeros((rows * cols, 4))
        farthest = 1
        for route in found:
            if t < len(route.ticks):
                farthest = max(farthest, _carry(carried, route, t, shape=(rows, cols)))
        hops += farthest
        messages += carried.max() / (rows * cols * len(found))
    return Load(2 * max(len(route.ticks) for route in found), 2 * hops, float(2 * messages))


def _carry(carried: np.ndarray, route: Route, tick: int, *, shape: tuple[int, int]) -> int:
    """Adds one tick's rows to the links that carry them; the most links that a message crosses."""
    sent = route.ticks[tick]
    farthest = 0
    for node in np.flatnonzero(sent.to >= 0):
        way = path(int(node), int(sent.to[node]), shape)
        farthest = max(farthest, len(way))
        for place, link in way:
            carried[place, link] += sent.rows[node]
    return farthest


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
    return min(found, key=lambda name: load(found[name], rows, cols).seconds(size_bytes, costs))
