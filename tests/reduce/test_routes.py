"""The tables themselves, played by hand over sets: whose gradient is in which row, and which link carries it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.reduce.colours import colour_shares, torus_routes
from podium.reduce.routes import Route, edges, hamiltonian_cycle, ring_routes, slots
from podium.reduce.swing import is_swinging, peers, swing_routes
from podium.reduce.woven import Woven, living_nodes, weave, woven_routes
from podium.reduce.woven import neighbours as joining

ROUTES = [
    pytest.param(ring_routes, id="ring"),
    pytest.param(torus_routes, id="torus"),
    pytest.param(woven_routes, id="woven"),
]
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


def check(route: Route) -> set[tuple[int, int]]:
    """Plays a route and its way back; gives the pairs of nodes that it joined."""
    nodes = route.own.size
    # holds[node][row] lists whose gradients are summed there: a list, so that adding one twice shows.
    holds = [[[node] for _ in range(nodes)] for node in range(nodes)]
    knows = [{int(row)} for row in route.own]
    joined = set()
    for tick in route.ticks:
        senders = [node for node in range(nodes) if tick.to[node] >= 0]
        assert len({int(tick.to[node]) for node in senders}) == len(senders), "two messages for one node"
        assert all(tick.rows[node] == 0 for node in range(nodes) if node not in senders)
        span = {node: range(tick.start[node], tick.start[node] + tick.rows[node]) for node in senders}
        moving = {node: [list(holds[node][row]) for row in span[node]] for node in senders}
        for node in senders:
            joined.add((node, int(tick.to[node])))
            for row, gradients in zip(span[node], moving[node], strict=True):
                holds[tick.to[node]][row] += gradients
    for node, row in enumerate(route.own):
        assert sorted(holds[node][row]) == list(range(nodes))
    for tick in reversed(route.ticks):
        back = {n: set(range(tick.start[n], tick.start[n] + tick.rows[n])) for n in range(nodes) if tick.to[n] >= 0}
        assert all(rows <= knows[tick.to[node]] for node, rows in back.items()), "sent back before it was there"
        for node, rows in back.items():
            knows[node] |= rows
    assert all(known == set(range(nodes)) for known in knows)
    return joined


@pytest.mark.parametrize("routes", ROUTES)
@settings(deadline=None, max_examples=30)
@given(rows=sides, cols=sides)
def test_every_owner_gets_every_gradient_exactly_once_and_all_get_them_back(routes, rows: int, cols: int) -> None:
    for route in routes(rows, cols):
        assert all(neighbours(a, b, rows, cols) for a, b in check(route))


@settings(deadline=None, max_examples=30)
@given(rows=sides, cols=sides, closed=st.tuples(st.booleans(), st.booleans()))
def test_an_open_axis_is_summed_from_both_ends_and_nothing_goes_around(rows: int, cols: int, closed) -> None:
    for route in torus_routes(rows, cols, closed=closed):
        for a, b in check(route):
            down, right = b // cols - a // cols, b % cols - a % cols
            assert closed[0] or abs(down) <= 1
            assert closed[1] or abs(right) <= 1


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(2, 7), cols=st.integers(2, 7), closed=st.tuples(st.booleans(), st.booleans()))
def test_with_their_shares_the_colours_load_the_links_of_both_axes_alike(rows: int, cols: int, closed) -> None:
    carried = np.zeros((2, rows * cols, rows * cols))  # [axis, from, to]
    for route in torus_routes(rows, cols, closed=closed):
        for tick in route.ticks:
            for node in np.flatnonzero(tick.to >= 0):
                axis = int(node // cols == tick.to[node] // cols)
                carried[axis, node, tick.to[node]] += tick.rows[node] * route.share
                carried[axis, tick.to[node], node] += tick.rows[node] * route.share  # on the way back
    down, right = carried.max((1, 2))
    assert down == right


def test_shares_are_those_counted_by_hand() -> None:
    assert colour_shares((4, 4)) == [1, 1]
    # The ring of two has one link, so 7/8 a / 2 + 7/16 (1−a) / 2 = (1−a) / 2 + a / 16 at a = 3/7.
    assert colour_shares((2, 8)) == [3, 4]
    assert colour_shares((1, 8)) == [1, 1]
    assert edges(torus_routes(2, 8), 28) == [0, 6, 12, 20, 28]


@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (4, 4), (2, 8), (8, 4), (1, 32)])
def test_swing_sums_everything_once_in_as_many_ticks_as_halvings(shape: tuple[int, int]) -> None:
    for route in swing_routes(*shape):
        check(route)
        assert 2 ** len(route.ticks) == shape[0] * shape[1]


def test_swing_leaves_by_four_links_and_meets_in_pairs() -> None:
    # On a ring of 8 the distances are 1, -1 and 3 (arXiv 2401.09356, section 3.1).
    assert peers((1, 8), 1, 1)[:, 0].tolist() == [1, 7, 3]
    for first in zip(*(route.ticks[0].to for route in swing_routes(4, 4)), strict=True):
        assert len(set(first)) == 4
    for meets in peers((8, 4), 0, -1):
        np.testing.assert_array_equal(meets[meets], np.arange(32))


def test_where_no_power_of_two_is_swing_is_the_two_colours() -> None:
    assert not is_swinging(3, 4)
    assert len(swing_routes(3, 4)[0].ticks) == len(torus_routes(3, 4)[0].ticks)


@pytest.mark.parametrize(
    ("shape", "ticks"), [((4, 4), 15), ((4, 8), 31), ((8, 4), 31), ((8, 2), 20), ((2, 8), 21), ((4, 4, 4), 63)]
)
def test_woven_routes_keep_every_link_busy(shape: tuple[int, ...], ticks: int) -> None:
    """N-1 rows arrive at each node of each route; a ring of two has one link less, so four routes take 4/3 as long
    there (2x8: 20 at best)."""
    routes = weave(Woven(shape))
    assert {len(route.ticks) for route in routes} == {ticks}
    for together in zip(*(route.ticks for route in routes), strict=True):
        for targets in zip(*(tick.to for tick in together), strict=True):
            used = [node for node in targets if node >= 0]
            assert len(set(used)) == len(used), "two routes on one link"


@pytest.mark.parametrize(("shape", "dead"), [((4, 4), (5,)), ((4, 4), (0, 15)), ((3, 5), (7,)), ((8, 8), (9, 10, 33))])
def test_woven_routes_go_around_the_dead(shape: tuple[int, int], dead: tuple[int, ...]) -> None:
    holes = Woven(shape, dead)
    living = living_nodes(holes)
    assert living.size == shape[0] * shape[1] - len(dead)
    for route in holes(1, living.size):
        assert all(neighbours(int(living[a]), int(living[b]), *shape) for a, b in check(route))
    # A node beside holes has fewer links for what goes over four elsewhere; it sets the pace.
    fewest = int((joining(holes) >= 0).sum(0).min())
    assert len(weave(holes)[0].ticks) <= 1.1 * 4 * (living.size - 1) / fewest


def test_with_a_lag_a_row_rests_before_it_is_passed_on() -> None:
    for route in Woven((3, 5), (7,), lag=3)(1, 14):
        check(route)
        came = {(node, int(row)): -3 for node, row in enumerate(route.own)}
        for number, tick in enumerate(reversed(route.ticks)):  # of the gather: from `to` to the node
            for node in np.flatnonzero(tick.to >= 0):
                row = int(tick.start[node])
                assert number - came[int(tick.to[node]), row] >= 3
                came[int(node), row] = number


def test_a_cut_link_carries_nothing() -> None:
    for route in Woven((4, 4), cut=((1, 2), (9, 5)))(4, 4):
        assert not check(route) & {(1, 2), (2, 1), (5, 9), (9, 5)}


def test_what_is_not_joined_is_refused() -> None:
    with pytest.raises(ValueError, match="not all joined"):
        weave(Woven((1, 6), dead=(0, 3)))
    with pytest.raises(ValueError, match="4x4 is 16 nodes"):
        Woven((4, 4), dead=(1,))(4, 4)


@pytest.mark.parametrize("side", [3, 4, 5])
def test_on_a_square_torus_the_four_routes_leave_by_four_different_links_at_every_tick(side: int) -> None:
    for together in zip(*(route.ticks for route in torus_routes(side, side)), strict=True):
        for node in range(side * side):
            assert len({int(tick.to[node]) for tick in together}) == 4


@pytest.mark.parametrize("routes", ROUTES)
@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8])
def test_each_step_is_a_permutation_that_stays_in_its_lane(routes, lanes: int) -> None:
    nodes = 6
    for slot in slots(routes, 2, 3, lanes=lanes):
        assert sorted(source for source, _ in slot.home) == sorted(to for _, to in slot.home)
        assert len(slot.home) == nodes * lanes
        for pairs in [slot.home, *(step.pairs for step in slot.steps)]:
            assert len({source for source, _ in pairs}) == len({to for _, to in pairs}) == len(pairs)
            assert all(source // nodes == to // nodes for source, to in pairs)


@pytest.mark.parametrize(("lanes", "chains"), [(1, 4), (2, 2), (3, 4), (4, 1), (6, 2), (8, 1)])
def test_four_lanes_need_a_single_chain_of_permutations(lanes: int, chains: int) -> None:
    assert len(slots(torus_routes, 2, 2, lanes=lanes)) == chains
