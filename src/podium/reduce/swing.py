"""Swing (De Sensi et al., arXiv 2401.09356): pairs exchange halves at distances 1, −1, 3, −5, 11 …, along one axis and
the other by turns. That is log₂ N ticks instead of rows + cols − 2, at the price of messages that cross several
links. Four routes (either axis first, mirrored or not) leave a node by four different links. It needs axes whose
lengths are powers of two; other tori get the two colours."""

from math import log2

import numpy as np

from podium.reduce.colours import torus_routes
from podium.reduce.routes import Route, Tick


def swing_routes(rows: int, cols: int) -> tuple[Route, ...]:
    if not is_swinging(rows, cols):
        return torus_routes(rows, cols)
    return tuple(_route((rows, cols), first, sign) for first in (1, 0) for sign in (1, -1))


def is_swinging(rows: int, cols: int) -> bool:
    """Whether Swing has a schedule of its own for this torus."""
    return all(length & (length - 1) == 0 for length in (rows, cols)) and rows * cols > 1


def peers(shape: tuple[int, int], first: int, sign: int) -> np.ndarray:
    """int [steps, nodes]: with whom each node exchanges. Even places of a ring go forwards, odd ones backwards, so two
    that meet at a step agree on it."""
    nodes = np.arange(shape[0] * shape[1])
    place = np.stack(np.divmod(nodes, shape[1]))
    left = [int(log2(length)) for length in shape]
    done, axis, steps = [0, 0], first, []
    while done != left:
        if done[axis] < left[axis]:
            distance = sign * (1 - (-2) ** (done[axis] + 1)) // 3
            moved = place.copy()
            moved[axis] = (place[axis] + np.where(place[axis] % 2, -distance, distance)) % shape[axis]
            steps.append(moved[0] * shape[1] + moved[1])
            done[axis] += 1
        axis = 1 - axis
    return np.array(steps)


def _route(shape: tuple[int, int], first: int, sign: int) -> Route:
    """What a node sends at step s are the rows of all that its peer will still reach; the rows are ordered so that
    these are next to each other."""
    meets = peers(shape, first, sign)
    nodes = np.arange(meets.shape[1])
    order = nodes[:1]
    for to in meets:
        order = np.stack([order, to[order]], 1).reshape(-1)
    own = np.argsort(order)
    reach = own[:, None]  # the rows that each node will have, from a step on to the end
    ticks = []
    for to in meets[::-1]:
        sent = reach[to]
        start, rows = sent.min(1), sent.shape[1]
        if (sent.max(1) - start >= rows).any():
            raise AssertionError(f"Swing on {shape}: the rows of a message are not next to each other")
        ticks.append(Tick(to, start, np.full(nodes.size, rows)))
        reach = np.concatenate([reach, sent], 1)
    return Route(tuple(reversed(ticks)), own)
