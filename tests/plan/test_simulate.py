"""The link-level simulation and the closed forms check each other; figures of the paper's pod come from facts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.plan import collective_time as cost
from podium.plan.hlo import Collective
from podium.plan.machines import Link, parse_pod
from podium.plan.simulate import ALGORITHMS, simulate

_MESSAGE, _LINK = 102e6, Link(70e9, 1e-6)
_FREE = Link(70e9, 0.0)  # without latency


def _closed(name: str, shape: tuple[int, int]) -> float:
    if name == "ring":
        return cost.ring_seconds(shape[0] * shape[1], _MESSAGE, _LINK)
    return cost.torus_seconds(shape, _MESSAGE, _LINK, colours=2 if name == "two-colour" else 1)


@pytest.mark.parametrize("shape", [(3, 3), (4, 4), (8, 8), (32, 32)])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_square_torus_takes_what_the_closed_form_says(name, shape):
    assert simulate(ALGORITHMS[name], shape, _MESSAGE, link=_LINK).seconds == pytest.approx(_closed(name, shape))


@pytest.mark.parametrize(("name", "milliseconds"), [("2-D", 1.58), ("two-colour", 0.85)])
def test_the_papers_pod(name, milliseconds):
    assert simulate(ALGORITHMS[name], (32, 32), _MESSAGE, link=_LINK).seconds == pytest.approx(
        milliseconds * 1e-3, rel=0.01
    )


def test_two_colours_keep_all_links_busy():
    assert simulate(ALGORITHMS["two-colour"], (8, 8), _MESSAGE, link=_FREE).link_use == pytest.approx(1.0)


@pytest.mark.parametrize("shape", [(4, 4), (8, 8), (16, 16)])
def test_without_wrap_links_it_takes_twice_as_long(shape):
    routes = ALGORITHMS["two-colour"]
    wrapped = simulate(routes, shape, _MESSAGE, link=_LINK).seconds
    assert simulate(routes, shape, _MESSAGE, link=_LINK, wraps=(False, False)).seconds == pytest.approx(
        2 * wrapped, rel=0.02
    )


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (3, 5), (8, 16), (2, 12)])
def test_an_oblong_open_torus_scales_as_a_square_one(shape):
    """A ring's messages of one tick share links with those that go back over a line, whichever axis is longer: a tick
    then costs what the busiest link carries, and no link carries a message twice."""
    ring = ALGORITHMS["ring"]
    for side in ((4, 4), shape):
        wrapped = simulate(ring, side, _MESSAGE, link=_FREE).seconds
        assert simulate(ring, side, _MESSAGE, link=_FREE, wraps=(False, False)).seconds == pytest.approx(wrapped)


@pytest.mark.parametrize("shape", [(3, 5), (4, 6), (8, 4)])
def test_ways_back_along_both_axes_add_their_own_hops(shape):
    """Where only latency counts, opening both axes costs what opening each of them costs, and no more."""

    def seconds(rows: bool, columns: bool) -> float:
        return simulate(ALGORITHMS["ring"], shape, 1e-3, link=Link(70e9, 1.0), wraps=(rows, columns)).seconds

    closed = seconds(True, True)
    extra = seconds(False, True) - closed, seconds(True, False) - closed
    assert seconds(False, False) - closed == pytest.approx(sum(extra))


def test_on_the_multipod_one_colour_beats_two():
    """128×32 with the long axis open: the second colour would send half of the data over the open axis first. The TPU
    compiler chooses one colour there as well."""
    seconds = {
        name: simulate(ALGORITHMS[name], (128, 32), _MESSAGE, link=_LINK, wraps=(False, True)).seconds
        for name in ("2-D", "two-colour")
    }
    assert seconds["2-D"] < seconds["two-colour"]


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(sorted(ALGORITHMS)),
    shape=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    wraps=st.tuples(st.booleans(), st.booleans()),
    hop=st.sampled_from([0.0, 1e-6, 1e-3]),
)
def test_no_schedule_beats_its_bounds(name, shape, wraps, hop):
    """Every node must send 2(N−1)/N of the message over at most four links, and opening an axis never helps."""
    nodes = shape[0] * shape[1]
    found = simulate(ALGORITHMS[name], shape, _MESSAGE, link=Link(70e9, hop), wraps=wraps)
    links = sum(2 if length > 2 else 1 for length in shape)
    bound = 2 * (nodes - 1) / nodes * _MESSAGE / _LINK.bandwidth / links
    assert found.seconds >= bound * (1 - 1e-9)
    assert found.seconds >= simulate(ALGORITHMS[name], shape, _MESSAGE, link=Link(70e9, hop)).seconds * (1 - 1e-9)
    assert 0 < found.link_use <= 1 + 1e-9


_SQUARE = [[cost.Ring(8), cost.Ring(8)]] * 2


def test_phases_agree_with_the_torus_form_where_both_hold():
    phases = cost.phases_seconds(_SQUARE, _MESSAGE, _LINK)
    assert phases == pytest.approx(cost.torus_seconds((8, 8), _MESSAGE, _LINK, colours=2))


def test_an_open_torus_costs_twice_the_bandwidth_and_the_same_latency():
    line = [[cost.Ring(8, is_open=True)] * 2] * 2
    closed, opened = (cost.phases_seconds(rings, _MESSAGE, _FREE) for rings in (_SQUARE, line))
    assert opened == pytest.approx(2 * closed)


def test_gpu_nodes_share_their_way_out():
    pod = parse_pod("a100:96x8")
    inside, outside = 2 * 7 / 8 * _MESSAGE / 300e9, 2 * 95 / 96 * _MESSAGE / 200e9
    assert cost.all_reduce_seconds(pod, _MESSAGE, 0.0) == pytest.approx(inside + outside)


def test_a_pincer_takes_half_the_hops_and_the_same_bytes():
    slow = Link(70e9, 1.0)
    around, halfway = (cost.phases_seconds(_SQUARE, _MESSAGE, slow, halfway=meets) for meets in (False, True))
    wire = cost.phases_seconds(_SQUARE, _MESSAGE, _FREE)
    assert around - wire == pytest.approx(2 * 14)
    assert halfway - wire == pytest.approx(2 * 8)


def test_a_small_sum_in_a_tile_goes_around_once():
    norm = Collective("all-reduce", 4096, 8, "SinglePhaseRingSumEmitter")
    assert cost.compiled_seconds(norm, parse_pod("v3:32x32"), 1e-6) == pytest.approx(7 * (1e-6 + 4096 / 140e9))


def test_a_scatter_is_half_of_a_sum():
    whole = Collective("all-reduce", 80_000, 8, "RotatedPincerEmitter", "StrategyRing", 1, 1, ((8,),))
    scatter = Collective("reduce-scatter", 10_000, 8, "RotatedPincerEmitter", "StrategyRing", 1, 1, ((8,),))
    pod = parse_pod("v3:32x32")
    assert cost.compiled_seconds(scatter, pod, 1e-6) == pytest.approx(cost.compiled_seconds(whole, pod, 1e-6) / 2)
