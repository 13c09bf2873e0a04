"""The harness of the benchmarks: turns, ratios, and what is refused before anything is measured."""

import pytest

from podium.bench import step, timing, update
from podium.errors import UserError


def test_all_are_warmed_up_and_then_take_turns():
    calls = []

    def work_of(name):
        def work():
            calls.append(name)
            return 10

        return work

    work = {name: work_of(name) for name in ("a", "b")}
    rates = timing.alternate(work, rounds=2)
    assert calls == ["a", "b"] * 3
    assert {name: len(values) for name, values in rates.items()} == {"a": 2, "b": 2}


def test_ratios_compare_neighbours_in_time():
    rates = {"a": [10.0, 30.0, 20.0], "b": [10.0, 10.0, 10.0]}
    assert timing.ratios(rates, "a", "b") == {"median": 2.0, "least": 1.0, "most": 3.0}


@pytest.mark.parametrize("rounds", [0, -1])
@pytest.mark.parametrize("run", [lambda n: step.run(("cifar",), step.Settings(n)), lambda n: update.run("1x2", n)])
def test_no_round_is_refused_before_anything_is_built(run, rounds, monkeypatch):
    monkeypatch.setattr(timing, "alternate", lambda *_: pytest.fail("measured"))
    with pytest.raises(UserError, match=f"rounds={rounds}; .*--rounds"):
        run(rounds)


def test_the_version_of_a_package_by_another_name_is_unknown():
    versions = timing.machine("numpy", "tensorflow-by-another-name")["versions"]
    assert versions["numpy"]
    assert versions["tensorflow-by-another-name"] is None
