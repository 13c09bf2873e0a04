"""The paper's algorithm for tori of any shape. A *colour* sums along all axes, one after the other; there are as many
colours as axes, each begins with another, and each goes both ways: routes that leave a node by as many different
links. In an oblong torus the colours take unequal shares of the data, such that the links of all axes carry alike."""

from fractions import Fraction
from math import lcm

import numpy as np

from podium.reduce.routes import Route, along


def torus_routes(*shape: int, closed: tuple[bool, ...] = ()) -> tuple[Route, ...]:
    """Both ways of each colour (in 2-D: X then Y, Y then X). An axis that is not `closed` has no link between its
    ends."""
    nodes = np.arange(np.prod(shape)).reshape(shape)
    shares = colour_shares(shape, closed)
    backwards = (slice(None, None, -1),) * len(shape)
    found = []
    for axes, share in zip(colours(len(shape)), shares, strict=True):
        grid, rings = nodes.transpose(axes), tuple(closed[axis] for axis in axes if closed)
        found += [along(way, rings, share) for way in (grid, grid[backwards])]
    return tuple(found)


def colours(axes: int) -> list[list[int]]:
    """The order in which each colour takes the axes. The first of a 2-D torus begins with X, the last axis."""
    return [[(first + k) % axes for k in range(axes)] for first in reversed(range(axes))]


def colour_shares(shape: tuple[int, ...], closed: tuple[bool, ...] = ()) -> list[int]:
    """How the data is shared among the colours, so that the links of all axes carry alike: the solution of as many
    equations. Where there is none, as with axes of one node, all take the same."""
    axes = len(shape)
    loads = [[Fraction(0)] * axes for _ in range(axes)]  # [axis][colour]: a link's part of what the colour sums
    for colour, order in enumerate(colours(axes)):
        left = Fraction(1)
        for axis in order:
            loads[axis][colour] = left * link_load(shape[axis], not closed or closed[axis])
            left /= shape[axis]
    equal = [1] * axes
    rows = [[a - b for a, b in zip(loads[k], loads[k + 1], strict=True)] + [Fraction(0)] for k in range(axes - 1)]
    solved = _solve([*rows, [Fraction(1)] * (axes + 1)])
    if solved is None or min(solved) < 0:
        return equal
    scale = lcm(*(share.denominator for share in solved))
    return [int(share * scale) for share in solved]


def link_load(length: int, is_closed: bool = True) -> Fraction:
    """What a link along an axis carries, each way, of a reduce-scatter and an all-gather along it: half of it, in units
    of the data. On a ring each row goes to all but one node, half of it either way (in a ring of two, over the one
    link); on a line over each link once there and once back."""
    if length == 1:
        return Fraction(0)
    if not is_closed or length == 2:
        return Fraction(1, 2)
    return Fraction(length - 1, 2 * length)


def _solve(system: list[list[Fraction]]) -> list[Fraction] | None:
    """By Gauss's elimination: each row has the coefficients and the right side. Nothing if it has no one solution."""
    for k in range(len(system)):
        pivot = next((row for row in system[k:] if row[k]), None)
        if pivot is None:
            return None
        system.remove(pivot)
        system.insert(k, [value / pivot[k] for value in pivot])
        for j, row in enumerate(system):
            if j != k:
                system[j] = [a - row[k] * b for a, b in zip(row, system[k], strict=True)]
    return [row[-1] for row in system]
