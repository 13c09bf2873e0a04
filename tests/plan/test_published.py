"""The planner against published results, from the compilations that come with Podium."""

import shutil
from dataclasses import replace

import pytest

from podium.errors import UserError
from podium.plan import libtpu, published
from podium.plan.estimate import CONSTANTS
from podium.plan.gradient_sum import is_two_colour_2d
from podium.plan.machines import parse_pod
from podium.plan.plan import plan_compiled
from podium.recipe.reading import load_recipe


@pytest.fixture(scope="module")
def found():
    return published.check(lambda stage: None)


@pytest.fixture(scope="module")
def results(found):
    return {result.point.name: result for result in found.points}


def test_every_published_point_is_planned_or_named(found, results):
    assert {*results, *found.not_compiled} == {point.name for point in published.POINTS}
    assert all(result.compiled_with.startswith("libtpu 0.") for result in results.values())


def test_the_papers_run_is_predicted_within_15_percent(results):
    assert abs(results["paper"].error) <= 0.15


def test_the_median_error_is_at_most_10_percent_and_the_worst_20(results):
    of_all = published.summary(list(results.values()))["all"]
    assert of_all["median_error"] <= 0.10
    assert of_all["worst_error"] <= 0.20


def test_every_second_point_is_kept_for_testing(results):
    assert [published.is_fitted(point) for point in published.POINTS] == [True, False] * 5 + [True]
    assert sum(not result.fitted for result in results.values()) >= 4


def test_the_constants_are_what_the_fitting_half_says():
    facts = published.kept()
    chosen = [point for point in published.POINTS if published.is_fitted(point) and point.name in facts]
    fitted = published.fit(facts, chosen)
    assert CONSTANTS.cycle_factor == pytest.approx(fitted.cycle_factor, rel=0.02)
    assert CONSTANTS.common_memory_gain == pytest.approx(fitted.common_memory_gain, rel=0.02)


def test_the_compiler_sums_the_papers_gradients_in_two_colours():
    facts = published.kept()["paper"]
    largest = max(facts.program.collectives, key=lambda c: c.bytes)
    assert is_two_colour_2d(largest)
    assert largest.bytes > 100e6
    plan = plan_compiled(load_recipe("resnet50-32k"), parse_pod("v3:32x32"), facts)
    assert plan.gradients.two_colour_2d
    assert "the paper's two-colour 2-D algorithm" in plan.gradients.words
    assert plan.fits


def test_a_sharded_update_takes_its_share_and_the_same_wires():
    facts = published.kept()["paper"]
    point = next(point for point in published.POINTS if point.name == "v3-1024")
    whole, sharded = (published.estimate_run(replace(point, sharded_update=shards), facts) for shards in (False, True))
    assert sharded.seconds_of("weight update") == pytest.approx(whole.seconds_of("weight update") / 2048, rel=0.01)
    for part in ("compute", "gradient summation", "batch-norm exchange"):
        assert sharded.seconds_of(part) == pytest.approx(whole.seconds_of(part))


def test_published_runs_are_planned_with_what_their_code_says():
    peers = {point.name: point.peer for point in published.POINTS}
    assert all(peer.optimizer == "lars" for peer in peers.values())
    assert {peer.image_layout for name, peer in peers.items() if name in ("v3-4096", "v4-4096")} == {"HWNC"}
    assert [name for name, peer in peers.items() if peer.gradient_sum == "bf16"] == ["v4-2048", "v4-3456", "v4-4096"]


def test_a_fresh_check_compiles_every_point_again_and_keeps_that(monkeypatch, tmp_path):
    shipped, asked = published.kept(), []
    monkeypatch.setattr(published, "_KEPT", shutil.copy(published._KEPT, tmp_path / "published.json"))
    monkeypatch.setattr(libtpu, "libtpu_version", lambda: "new")

    def compiled(program, pod, stage, *, fresh):
        asked.append((program.batch_global, str(pod), fresh))
        return replace(shipped["paper"], versions={"libtpu": "new"})

    monkeypatch.setattr(libtpu, "compiled", compiled)
    found = published.check(lambda stage: None, fresh=True)
    runs = [(point.batch_global, point.topology, True) for point in published.POINTS]
    assert asked == [*runs, (32768, "v3:32x32", True)]  # and Podium's own, on the paper's pod
    assert {result.compiled_with for result in found.points} == {"libtpu new"}
    assert {facts.versions["libtpu"] for facts in published.kept().values()} == {"new"}


def test_a_fresh_check_without_the_compiler_says_so(monkeypatch):
    monkeypatch.setattr(libtpu, "libtpu_version", lambda: None)
    with pytest.raises(UserError, match="libtpu is not installed"):
        published.check(lambda stage: None, fresh=True)
