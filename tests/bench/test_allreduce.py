import pytest

from podium.bench.allreduce import LANES, Measured, Which, _bound_seconds, bench_allreduce
from podium.errors import UserError
from podium.recipe.torus import Shape


@pytest.mark.slow
def test_two_hosts_on_loopback_agree_on_every_sum() -> None:
    reported: list[Measured] = []
    measured = bench_allreduce(Shape(1, 2, LANES), sizes_bytes=[4099], repeats=1, report=reported.append)
    assert measured == reported
    (result,) = (m.to_json() for m in measured)
    assert (result["hosts"], result["links"], result["bytes"]) == (2, "shared", 4099)
    assert set(result["seconds"]) == {"xla", "ring", "torus", "woven", "swing", "exchange", "sockets"} | {
        "sockets, torus",
        "sockets, swing",
    }
    assert result["auto"].partition(",")[0] in result["seconds"]
    assert result["bound_seconds"] is None


@pytest.mark.slow
def test_hosts_sum_around_one_that_is_dead() -> None:
    (result,) = bench_allreduce(Shape(2, 2, 1), sizes_bytes=[4099], repeats=1, which=Which(dead=(3,)))
    assert (result.hosts, set(result.seconds)) == (3, {"xla", "around", "sockets, around"})


def test_the_bound_counts_all_links_of_a_host() -> None:
    # Beside a dead host three links are left.
    assert _bound_seconds(Shape(4, 4), "200mbit", 4_000_000, dead=(5,)) == pytest.approx(2 * 14 / 15 * 4e6 / 75e6)
    # 16 hosts: each sends 15/16 of 4 MB twice, over four links of 25 MB/s.
    assert _bound_seconds(Shape(4, 4), "200mbit", 4_000_000) == pytest.approx(2 * 15 / 16 * 4e6 / 100e6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"torus": Shape(1, 1)}, "torus 1x1 has 1 host"),
        ({"torus": Shape(2, 2), "links": "wifi"}, "links='wifi' is not known; use shared"),
        ({"torus": Shape(2, 2), "links": "torus", "rate": "7"}, "'7' is not a link rate"),
        ({"torus": Shape(2, 2), "repeats": 0}, "repeats=0; use 1 or more"),
        ({"torus": Shape(2, 2), "sizes_bytes": [0]}, "size=0; use 1 or more"),
    ],
)
def test_mistakes_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        bench_allreduce(**arguments)
