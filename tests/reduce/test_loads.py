"""Loads against a count by hand, and the choice that follows from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.reduce.colours import torus_routes
from podium.reduce.loads import Costs, best, candidates, load, path
from podium.reduce.routes import ring_routes
from podium.reduce.swing import swing_routes
from podium.reduce.woven import woven_routes

ETHERNET = Costs(1e-3, 12.5e6)


@given(shape=st.tuples(st.integers(1, 6), st.integers(1, 6)), data=st.data())
def test_a_path_is_the_shortest_and_ends_where_it_should(shape: tuple[int, int], data: st.DataObject) -> None:
    nodes = shape[0] * shape[1]
    node, target = (data.draw(st.integers(0, nodes - 1)) for _ in range(2))
    at = list(divmod(node, shape[1]))
    for place, link in path(node, target, shape):
        assert place == at[0] * shape[1] + at[1]
        axis, backwards = divmod(link, 2)
        at[axis] = (at[axis] + (-1 if backwards else 1)) % shape[axis]
    assert at[0] * shape[1] + at[1] == target
    apart = [abs(a - b) for a, b in zip(divmod(node, shape[1]), divmod(target, shape[1]), strict=True)]
    assert len(path(node, target, shape)) == sum(min(d, n - d) for d, n in zip(apart, shape, strict=True))


@pytest.mark.parametrize(
    ("routes", "shape", "ticks", "messages"),
    [
        # N−1 of N rows over one link, there and back.
        (ring_routes, (4, 4), 30, 2 * 15 / 16),
        # The same over four links.
        (torus_routes, (4, 4), 12, 2 * 15 / 16 / 4),
        (swing_routes, (4, 4), 8, 2 * 15 / 16 / 4),
        # Three links are the least; 20 ticks of 15 rows' worth.
        (woven_routes, (8, 2), 40, 2 * 15 / 16 / 3),
    ],
)
def test_loads_are_those_counted_by_hand(routes, shape, ticks, messages) -> None:
    found = load(routes, *shape)
    assert found.ticks == ticks
    assert found.messages == pytest.approx(messages)


def test_small_sums_take_few_ticks_and_large_ones_few_bytes() -> None:
    assert best(4, 8, 1 << 14, costs=ETHERNET) == "swing"
    assert best(4, 8, 1 << 27, costs=ETHERNET) == "woven"
    assert best(3, 3, 1 << 14, costs=ETHERNET) == best(3, 3, 1 << 27, costs=ETHERNET) == "torus"


def test_on_slow_hops_large_messages_count_as_small() -> None:
    far = Costs(0.1, 12.5e6)
    assert best(2, 8, 1 << 22, costs=ETHERNET) == "woven"
    assert best(2, 8, 1 << 22, costs=far) == "swing"


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 5), (2, 8), (16, 16)])
def test_every_torus_has_a_choice(shape: tuple[int, int]) -> None:
    assert best(*shape, 1000, costs=ETHERNET) in candidates(*shape)
