"""Sums over any torus, whole or with holes, by a schedule that is found and not drawn: woven from single rows, so that
every link of every living node is at work at almost every tick. The all-gather is grown tick by tick. Each route owns
a different direction at each tick, and in it every node passes on a row that its neighbour still lacks. Backwards
that is the reduce-scatter, and it needs no more bytes than the best there is: N−1 rows for each node and route. It
needs N−1 ticks, where two colours need rows + cols − 2: a schedule for large messages, for tori that are not square,
and for those that have lost nodes or links."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np

from podium.reduce.routes import Route, Tick


@dataclass(frozen=True)
class Woven:
    """Routes over the living nodes of the torus `shape`, numbered in its order without the dead.

    `dead` are places in the whole torus; a pair in `cut` is a link that carries nothing either way."""

    shape: tuple[int, ...]
    dead: tuple[int, ...] = ()
    cut: tuple[tuple[int, int], ...] = ()

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
    has = np.repeat(np.eye(nodes, dtype=bool)[None], directions, 0)  # [route, node, row]
    gathers: list[list[Tick]] = [[] for _ in range(directions)]
    lines, offsets = _lines(torus), _offsets(torus)
    tick = 0
    while not has.all():
        for route, direction in enumerate(_assignment(has, ways, tick)):
            gathers[route].append(_pass_on(has[route], ways[direction], line=lines[direction // 2], offsets=offsets))
        tick += 1
    return tuple(Route(tuple(map(_backwards, reversed(ticks))), np.arange(nodes)) for ticks in gathers)


def _lines(torus: Woven) -> list[np.ndarray]:
    """For each axis, int [living]: the number of the line along it on which a node lies."""
    whole = np.arange(int(np.prod(torus.shape))).reshape(torus.shape)
    return [
        np.broadcast_to(whole.take([0], axis), whole.shape).reshape(-1)[living_nodes(torus)]
        for axis in range(whole.ndim)
    ]


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


def _assignment(has: np.ndarray, ways: np.ndarray, tick: int) -> tuple[int, ...]:
    """The direction of each route at this tick: those in which most nodes learn something, and among equals those in
    turn, so that every route grows evenly along all axes."""
    directions, nodes = ways.shape
    in_turn = tuple((route + tick) % directions for route in range(directions))
    if nodes > 64:
        return in_turn
    learn = np.zeros((directions, directions), int)
    for route in range(directions):
        for direction, to in enumerate(ways):
            senders = np.flatnonzero(to >= 0)
            news = has[route, senders] & ~has[route, to[senders]]
            learn[route, direction] = np.count_nonzero(news.any(1))
    of_routes = np.arange(directions)
    turned = [tuple(in_turn[k] for k in order) for order in permutations(range(directions))]
    return max(turned, key=lambda chosen: learn[of_routes, list(chosen)].sum())


def _pass_on(has: np.ndarray, to: np.ndarray, *, line: np.ndarray, offsets: np.ndarray) -> Tick:
    """One tick of one route of the all-gather: every node sends a row that its neighbour lacks, one whose owner lies
    on a line (along this tick's axis) of which the neighbour has least. A line that is full is of no more use, so they
    fill evenly."""
    nodes = to.size
    senders = np.flatnonzero(to >= 0)
    senders = senders[(has[senders] & ~has[to[senders]]).any(1)]
    target, start, count = np.full(nodes, -1), np.zeros(nodes, int), np.zeros(nodes, int)
    learners = to[senders]
    members = line[:, None] == np.unique(line)  # [row, line]
    filled = (has[learners].astype(np.float32) @ members.astype(np.float32)) @ members.T.astype(np.float32)
    score = np.where(has[senders] & ~has[learners], filled * (nodes + 1) * 2 + offsets[learners], np.inf)
    rows = score.argmin(1)
    target[senders], start[senders], count[senders] = learners, rows, 1
    has[learners, rows] = True
    return Tick(target, start, count)


def _backwards(tick: Tick) -> Tick:
    """The same rows over the same links, the other way."""
    nodes = tick.to.size
    sources = np.flatnonzero(tick.to >= 0)
    to, start, rows = np.full(nodes, -1), np.zeros(nodes, int), np.zeros(nodes, int)
    to[tick.to[sources]], start[tick.to[sources]], rows[tick.to[sources]] = sources, tick.start[sources], 1
    return Tick(to, start, rows)
