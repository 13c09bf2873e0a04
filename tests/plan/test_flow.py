"""The simulation without a common tick, against the closed forms, the bound and the simulation tick by tick."""

import numpy as np
import pytest

from podium.plan.collective_time import torus_seconds as closed_form
from podium.plan.flow import bound_seconds, colour_shares, torus_seconds, woven_seconds
from podium.plan.machines import Link, parse_pod
from podium.plan.plan import schedules
from podium.plan.simulate import simulate
from podium.reduce.routes import torus_routes
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


def test_shares_load_all_axes_alike() -> None:
    np.testing.assert_allclose(colour_shares((4, 4), (True, True)), [0.5, 0.5])
    # By hand: the ring of two has one link, so 7/8 a / 2 + 7/16 (1−a) / 2 = (1−a) / 2 + a / 16 at a = 3/7.
    np.testing.assert_allclose(colour_shares((2, 8), (True, True)), [3 / 7, 4 / 7])
    assert colour_shares((1, 8), (True, True)).sum() == pytest.approx(1)


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


def test_an_open_axis_sends_the_last_hop_back() -> None:
    closed = torus_seconds((4, 4), _MESSAGE, link=_FREE, pieces=32).seconds
    opened = torus_seconds((4, 4), _MESSAGE, link=_FREE, wraps=(False, True), pieces=32).seconds
    assert opened == pytest.approx(4 / 3 * closed, rel=0.05)


def test_a_plan_of_a_3_d_pod_has_the_three_colours_beside_their_closed_form() -> None:
    seconds = schedules(parse_pod("v4:4x4x4"), _MESSAGE)["three-colour"]
    assert seconds["simulated_seconds"] == pytest.approx(seconds["closed_form_seconds"])
