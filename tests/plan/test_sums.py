"""What the compiler's own choices cost and where they stand: one way or both, halves of a sum, and several sums."""

import pytest

from podium.plan.collective_time import Ring, compiled_seconds, phases_seconds, ring_seconds, torus_seconds
from podium.plan.hlo import Collective, read_program
from podium.plan.machines import Link, parse_pod

_POD = parse_pod("v3:4x4")


def _ring(strategy: str) -> Collective:
    return Collective("all-reduce", 8_000_000, 8, "RotatedPincerEmitter", strategy, 1, 1, ((8,),), ((0,),))


def test_a_sum_in_one_direction_takes_twice_as_long_on_the_wire():
    one_way, both_ways = (compiled_seconds(_ring(s), _POD, 0.0) for s in ("UniDirectionNDRingStrategy", "StrategyND"))
    assert one_way == pytest.approx(2 * both_ways)


def test_directions_that_meet_halfway_take_half_of_the_hops():
    """Of a ring of eight: four hops to the other side, seven around, and the same back."""
    nothing = Collective("all-reduce", 0, 8, "", "StrategyND", 1, 1, ((8,),), ((0,),))
    pincer = Collective("all-reduce", 0, 8, "RotatedPincerEmitter", "StrategyND", 1, 1, ((8,),), ((0,),))
    assert compiled_seconds(nothing, _POD, 1.0) == 14
    assert compiled_seconds(pincer, _POD, 1.0) == 8


def test_a_scatter_or_gather_is_half_of_a_sum_of_what_went_in():
    whole = _ring("StrategyND")
    for kind, size in (("reduce-scatter", 1_000_000), ("all-gather", 8_000_000)):
        half = Collective(kind, size, 8, whole.emitter, whole.strategy, 1, 1, whole.rings, whole.axes_of_colours)
        assert half.whole_bytes == 8_000_000
        assert compiled_seconds(half, _POD, 1e-6) == pytest.approx(compiled_seconds(whole, _POD, 1e-6) / 2)


def test_closed_forms_worked_by_hand():
    """100 bytes at 10 bytes/s and 1 s a hop. A ring of 5: 2 × 4 hops of 20 bytes each. A 2 × 5 torus: 2 × (1 + 4) hops,
    and 2 × 9/10 of the bytes over two directions, with two colours over four."""
    link = Link(bandwidth=10.0, hop_seconds=1.0)
    assert ring_seconds(5, 100.0, link) == pytest.approx(8 * (1 + 2))
    assert torus_seconds((2, 5), 100.0, link) == pytest.approx(10 + 9)
    assert torus_seconds((2, 5), 100.0, link, colours=2) == pytest.approx(10 + 4.5)


def test_a_phase_ends_with_its_slowest_colour():
    """Rings of two and of eight, in turns: one hop and seven, there and back, and each colour waits for the other."""
    colours = [[Ring(2), Ring(8)], [Ring(8), Ring(2)]]
    assert phases_seconds(colours, 0.0, Link(bandwidth=10.0, hop_seconds=1.0)) == 2 * 14


_TWO_SUMS = """HloModule jit_f, is_scheduled=true

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %a = f32[8]{0} fusion(%p), kind=kLoop, backend_config={"window_config":{"estimated_cycles":"1000"}}
  %one = f32[1024]{0} all-reduce(%a), replica_groups={{0,1}}, to_apply=%add
  %b = f32[8]{0} fusion(%p), kind=kLoop, backend_config={"window_config":{"estimated_cycles":"300"}}
  %two = f32[900]{0} all-reduce(%b), replica_groups={{0,1}}, backend_config="colors:3 phases:1 cores:{2},"
  ROOT %c = f32[8]{0} fusion(%two), kind=kLoop, backend_config={"window_config":{"estimated_cycles":"20"}}
}
"""


def test_the_update_stands_behind_the_last_of_several_buckets():
    program = read_program(_TWO_SUMS)
    assert (program.cycles, program.update_cycles) == (1320, 20)
    assert [c.cores for c in program.collectives] == [2, 2]
    assert (program.collectives[1].colours, program.collectives[1].phases) == (3, 1)
