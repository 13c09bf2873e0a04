"""The simulation without a common tick, against the closed forms, the bound and the simulation tick by tick."""

import pytest

from podium.plan.collective_time import torus_seconds as closed_form
from podium.plan.flow import bound_seconds, torus_seconds, woven_seconds
from podium.plan.machines import Link, parse_pod
from podium.plan.plan import schedules
from podium.plan.simulate import simulate
from podium.reduce.colours import torus_routes
from podium.reduce.woven import Woven

_MESSAGE, _LINK, _FREE = 102e6, Link(70e9, 1e-6), Link(70e9, 0.0)


@pytest.mark.parametrize("shape", [(4, 4), (8, 8)])
def test_in_one_piece_a_square_torus_takes_what_the_simulation_by_ticks_says(shape: tuple[int, int]) -> None:
    by_ticks = simulate(torus_routes, shape, _MESSAGE, link=_LINK).seconds
    assert torus_seconds(shape, _MESSAGE, link=_LINK, pieces=1).seconds == pytest.approx(by_ticks)


@pytest.mark.parametrize("shape", [(4, 4, 4), (6, 6, 6)])
def test_three_colours_on_a_cube_take_what_the_closed_form_says(shape: tuple[int, int, int]) -> None:
    seconds = torus_seconds(shape, _MESSAGE, link=_LINK, pieces=1).seconds
    assert seconds == pytest.approx(closed_form(shape, _MESSAGE, _LINK, colours=3))
    assert seconds == pytest.approx(bound_seconds(shape, _MESSAGE, link=_LINK))


@pytest.mark.parametrize("shape", [(4, 8), (2, 8), (8, 2)])
def test_oblong_tori_come_within_5_percent_of_the_bound(shape: tuple[int, int]) -> None:
    found = min(woven_seconds(Woven(shape), _MESSAGE, link=_LINK).seconds,
                torus_seconds(shape, _MESSAGE, link=_LINK, pieces=32).seconds)  # fmt: skip
    assert 0.95 < found / bound_seconds(shape, _MESSAGE, link=_LINK) < 1.05


def test_no_link_is_used_beyond_its_time() -> None:
    for found in (
        woven_seconds(Woven((4, 4), (5,)), _MESSAGE, link=_LINK),
        torus_seconds((4, 8), _MESSAGE, link=_FREE),
    ):
        assert 0.5 < found.link_use <= 1


def test_around_a_dead_node_takes_at_most_half_more() -> None:
    whole = torus_seconds((4, 4), _MESSAGE, link=_LINK, pieces=1).seconds
    assert woven_seconds(Woven((4, 4), (5,)), _MESSAGE, link=_LINK).seconds < 1.5 * whole


def test_the_bound_of_an_open_line_is_that_of_its_links() -> None:
    # Each link must carry all of the data once either way, whatever the line's length, and over 7 hops there and back.
    assert bound_seconds((1, 8), 70e6, link=_LINK, wraps=(True, False)) == pytest.approx(1e-3 + 14e-6)
    # 4 rings of 4 have 32 links, 4 lines of 4 have 24: 2 x 15 x 70 MB over 56 of them.
    opened = bound_seconds((4, 4), 70e6, link=_FREE, wraps=(False, True))
    assert opened == pytest.approx(2 * 15 / 56 * 1e-3)


@pytest.mark.parametrize(("shape", "worst"), [((1, 8), 1.1), ((16, 4), 1.15)])
def test_an_open_axis_comes_near_its_bound(shape: tuple[int, int], worst: float) -> None:
    wraps = (False, True) if shape[0] > 1 else (True, False)
    found = torus_seconds(shape, _MESSAGE, link=_LINK, wraps=wraps, pieces=32)
    assert 1 <= found.seconds / bound_seconds(shape, _MESSAGE, link=_LINK, wraps=wraps) < worst


def test_a_plan_of_a_3_d_pod_has_the_three_colours_beside_their_closed_form() -> None:
    seconds = schedules(parse_pod("v4:4x4x4"), _MESSAGE)["three-colour"]
    assert seconds["simulated_seconds"] == pytest.approx(seconds["closed_form_seconds"])
