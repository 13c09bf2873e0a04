"""The tables themselves, played by hand over sets: whose gradient is in which row, and which link carries it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.reduce.routes import hamiltonian_cycle, ring_routes, slots, ticks, torus_routes

ROUTES = [pytest.param(ring_routes, id="ring"), pytest.param(torus_routes, id="torus")]
sides = st.integers(1, 7)


def neighbours(a: int, b: int, rows: int, cols: int) -> bool:
    down, right = (b // cols - a // cols) % rows, (b % cols - a % cols) % cols
    return (down in (0, 1, rows - 1) and right == 0) or (right in (0, 1, cols - 1) and down == 0)


@settings(deadline=None, max_examples=30)
@given(rows=sides, cols=sides)
def test_the_ring_visits_every_node_once_over_links_of_the_torus(rows: int, cols: int) -> None:
    cycle = hamiltonian_cycle(rows, cols)
    assert sorted(cycle) == list(range(rows * cols))
    for a, b in zip(cycle, np.roll(cycle, -1), strict=True):
        assert neighbours(int(a), int(b), rows, cols)


@pytest.mark.parametrize("routes", ROUTES)
@settings(deadline=None, max_examples=30)
@given(rows=sides, cols=sides)
def test_every_owner_gets_every_gradient_exactly_once_and_all_get_them_back(routes, rows: int, cols: int) -> None:
    nodes = rows * cols
    for grid in routes(rows, cols):
        # holds[node][row] lists whose gradients are summed there: a list, so that adding one twice shows.
        holds = [[[node] for _ in range(nodes)] for node in range(nodes)]
        for tick in ticks(grid):
            moving = [[list(holds[n][s + k]) for k in range(tick.rows)] for n, s in enumerate(tick.start)]
            for node, target in enumerate(tick.to):
                assert neighbours(node, int(target), rows, cols)
                for k, gradients in enumerate(moving[node]):
                    holds[target][tick.start[node] + k] += gradients
        owner_of_row = grid.reshape(-1)
        for row, owner in enumerate(owner_of_row):
            assert sorted(holds[owner][row]) == list(range(nodes))
        knows = [{row for row, owner in enumerate(owner_of_row) if owner == node} for node in range(nodes)]
        for tick in reversed(ticks(grid)):
            sent = {}
            for node, target in enumerate(tick.to):
                rows_sent = set(range(tick.start[node], tick.start[node] + tick.rows))
                assert rows_sent <= knows[target], "a row was sent back before it was there"
                sent[node] = rows_sent
            for node, rows_sent in sent.items():
                knows[node] |= rows_sent
        assert all(known == set(range(nodes)) for known in knows)


@pytest.mark.parametrize("side", [3, 4, 5])
def test_on_a_square_torus_the_four_routes_leave_by_four_different_links_at_every_tick(side: int) -> None:
    for together in zip(*map(ticks, torus_routes(side, side)), strict=True):
        for node in range(side * side):
            assert len({int(tick.to[node]) for tick in together}) == 4


@pytest.mark.parametrize("routes", ROUTES)
@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8])
def test_each_step_is_a_permutation_that_stays_in_its_lane(routes, lanes: int) -> None:
    nodes = 6
    for slot in slots(routes, 2, 3, lanes=lanes):
        for pairs in [slot.home, *(step.pairs for step in slot.steps)]:
            assert sorted(source for source, _ in pairs) == sorted(to for _, to in pairs) == list(range(nodes * lanes))
            assert all(source // nodes == to // nodes for source, to in pairs)


@pytest.mark.parametrize(("lanes", "chains"), [(1, 4), (2, 2), (3, 4), (4, 1), (6, 2), (8, 1)])
def test_four_lanes_need_a_single_chain_of_permutations(lanes: int, chains: int) -> None:
    assert len(slots(torus_routes, 2, 2, lanes=lanes)) == chains
