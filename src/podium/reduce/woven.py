"""Sums over any torus, whole or with holes, by a schedule that is found and not drawn: woven from single rows, so that
every link of every living node is at work at almost every tick. The all-gather is grown tick by tick. Each route owns
a different direction at each tick, and in it every node passes on a row that its neighbour still lacks. Backwards
that is the reduce-scatter, and it needs no more bytes than the best there is: N−1 rows for each node and route. It
needs N−1 ticks, where two colours need rows + cols − 2: a schedule for large messages, for tori that are not square,
and for those that have lost nodes or links."""

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np

from podium.reduce.routes import Route, Tick

_HELD = 1 << 30  # the rank of a row that a node has


@dataclass(frozen=True)
class Woven:
    """Routes over the living nodes of the torus `shape`, numbered in its order without the dead.

    `dead` are places in the whole torus; a pair in `cut` is a link that carries nothing either way. A row that has come
    may be passed on `lag` ticks later: more than 1 where a hop takes longer than a row takes on its link."""

    shape: tuple[int, ...]
    dead: tuple[int, ...] = ()
    cut: tuple[tuple[int, int], ...] = ()
    lag: int = 1

    def __call__(self, rows: int, cols: int) -> tuple[Route, ...]:
        living = int(np.prod(self.shape)) - len(self.dead)
        if rows * cols != living:
            raise ValueError(f"{rows}x{cols} is {rows * cols} nodes; {self.shape} without {self.dead} has {living}")
        return weave(self)


def woven_routes(rows: int, cols: int) -> tuple[Route, ...]:
    """The routes of a whole torus."""
    return weave(Woven((rows, cols)))


def living_nodes(torus: Woven) -> np.ndarray:
    """int [living]: the place of each living node in the whole torus."""
    return np.setdiff1d(np.arange(int(np.prod(torus.shape))), np.array(torus.dead, int))


def neighbours(torus: Woven) -> np.ndarray:
    """int [directions, living]: who is next to each living node, forwards and backwards along each axis; −1 where
    nobody is. In a ring of two both ways lead to the same node over one link: the second is left out."""
    whole = np.arange(int(np.prod(torus.shape))).reshape(torus.shape)
    living = living_nodes(torus)
    number = np.full(whole.size, -1)
    number[living] = np.arange(living.size)
    ways = []
    for axis, length in enumerate(torus.shape):
        for step in (1, -1):
            to = np.roll(whole, -step, axis).reshape(-1)[living]
            is_link = length > 2 or (length == 2 and step == 1)
            usable = [is_link and not {(a, b), (b, a)} & set(torus.cut) for a, b in zip(living, to, strict=True)]
            ways.append(np.where(usable, number[to], -1))
    return np.array(ways)


@lru_cache(maxsize=16)
def weave(torus: Woven) -> tuple[Route, ...]:
    """One route per direction of the torus, two for each axis."""
    ways = neighbours(torus)
    directions, nodes = ways.shape
    if nodes > 1 and not _is_connected(ways):
        raise ValueError(f"the living nodes of {torus.shape} without {torus.dead} are not all joined by links")
    lines, offsets = _lines(torus), _offsets(torus)
    grown = [_Gather(lines, offsets, torus.lag) for _ in range(directions)]
    tick = 0
    while not all(gather.has.all() for gather in grown):
        for gather, direction in zip(grown, _assignment(grown, ways, tick), strict=True):
            gather.pass_on(ways[direction], axis=direction // 2)
        tick += 1
    return tuple(Route(tuple(map(_backwards, reversed(gather.ticks))), np.arange(nodes)) for gather in grown)


class _Gather:
    """The all-gather of one route, as it grows."""

    def __init__(self, lines: list[np.ndarray], offsets: np.ndarray, lag: int) -> None:
        """`lines` has, for each axis and row, the rows on its line along that axis."""
        self.ticks: list[Tick] = []
        nodes = np.arange(len(offsets))
        self.has = np.zeros(offsets.shape, bool)  # [node, row]
        self.sends = np.eye(len(offsets), dtype=bool)  # what it may pass on: all it has but the last that came
        self._coming: deque[tuple[np.ndarray, np.ndarray]] = deque([(nodes, nodes)] * (lag - 1))
        # By axis, [node, row]: what a row is worth to a node, least first. Kept from tick to tick: to find it anew at
        # each would take ten times as long.
        self._rank = [offsets.astype(np.int32) for _ in lines]
        self._lines = lines
        self._learn(nodes, nodes)

    def pass_on(self, to: np.ndarray, *, axis: int) -> None:
        """One tick: every node sends a row that its neighbour lacks, one whose owner lies on a line (along this tick's
        axis) of which the neighbour has least. A line that is full is of no more use, so they fill evenly."""
        senders = np.flatnonzero(to >= 0)
        rank = np.where(self.sends[senders], self._rank[axis][to[senders]], _HELD)
        rows = rank.argmin(1)
        is_news = rank[np.arange(senders.size), rows] < _HELD
        senders, rows = senders[is_news], rows[is_news]
        target, start, count = np.full(to.size, -1), np.zeros(to.size, int), np.zeros(to.size, int)
        target[senders], start[senders], count[senders] = to[senders], rows, 1
        self._learn(to[senders], rows)
        self.ticks.append(Tick(target, start, count))

    def _learn(self, nodes: np.ndarray, rows: np.ndarray) -> None:
        self.has[nodes, rows] = True
        self._coming.append((nodes, rows))
        self.sends[self._coming.popleft()] = True
        for rank, line in zip(self._rank, self._lines, strict=True):
            rank[nodes[:, None], line[rows]] += 2 * (len(rank) + 1)
            rank[nodes, rows] = _HELD


def _lines(torus: Woven) -> list[np.ndarray]:
    """For each axis, int [living, length]: the nodes on the line along it on which a node lies; where some are dead,
    one of the living stands in for them."""
    living = living_nodes(torus)
    number = np.full(int(np.prod(torus.shape)), -1)
    number[living] = np.arange(living.size)
    numbers = number.reshape(torus.shape)
    found = []
    for axis, length in enumerate(torus.shape):
        line = np.repeat(np.moveaxis(numbers, axis, -1)[..., None, :], length, -2)
        line = np.moveaxis(line, -2, axis).reshape(-1, length)[living]
        found.append(np.where(line >= 0, line, np.arange(living.size)[:, None]))
    return found


def _offsets(torus: Woven) -> np.ndarray:
    """int [node, row]: where the row's owner lies as seen from the node, as a number. It decides between equally good
    rows, so that all nodes of a whole torus do the same."""
    places = np.array(np.unravel_index(living_nodes(torus), torus.shape))
    seen = [(place[None, :] - place[:, None]) % length for place, length in zip(places, torus.shape, strict=True)]
    return np.ravel_multi_index(seen, torus.shape)


def _is_connected(ways: np.ndarray) -> bool:
    reached, edge = {0}, [0]
    while edge:
        edge = [int(n) for n in {int(k) for node in edge for k in ways[:, node]} - reached - {-1}]
        reached.update(edge)
    return len(reached) == ways.shape[1]


def _assignment(grown: list[_Gather], ways: np.ndarray, tick: int) -> tuple[int, ...]:
    """The direction of each route at this tick: those in which most nodes learn something, and among equals those in
    turn, so that every route grows evenly along all axes."""
    directions, nodes = ways.shape
    in_turn = tuple((route + tick) % directions for route in range(directions))
    if nodes > 64:
        return in_turn
    learn = np.zeros((directions, directions), int)
    for route, gather in enumerate(grown):
        for direction, to in enumerate(ways):
            senders = np.flatnonzero(to >= 0)
            news = gather.sends[senders] & ~gather.has[to[senders]]
            learn[route, direction] = np.count_nonzero(news.any(1))
    of_routes = np.arange(directions)
    turned = [tuple(in_turn[k] for k in order) for order in permutations(range(directions))]
    return max(turned, key=lambda chosen: learn[of_routes, list(chosen)].sum())


def _backwards(tick: Tick) -> Tick:
    """The same rows over the same links, the other way."""
    nodes = tick.to.size
    sources = np.flatnonzero(tick.to >= 0)
    to, start, rows = np.full(nodes, -1), np.zeros(nodes, int), np.zeros(nodes, int)
    to[tick.to[sources]], start[tick.to[sources]], rows[tick.to[sources]] = sources, tick.start[sources], 1
    return Tick(to, start, rows)
