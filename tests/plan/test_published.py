"""The planner against published results, from the compilations that come with Podium."""

import shutil
from dataclasses import replace

import pytest

from podium.errors import UserError
from podium.plan import libtpu as compiling
from podium.plan import published
from podium.plan.estimate import CONSTANTS
from podium.plan.gradient_sum import is_two_colour_2d
from podium.plan.machines import parse_pod
from podium.plan.plan import plan_compiled


@pytest.fixture(scope="module")
def results():
    return {result.point.name: result for result in published.check(lambda stage: None)}


def test_every_published_point_is_planned(results):
    assert list(results) == [point.name for point in published.POINTS]
    assert all(result.compiled_with.startswith("libtpu 0.") for result in results.values())


def test_the_papers_run_is_predicted_within_15_percent(results):
    assert abs(results["paper"].error) <= 0.15


def test_the_median_error_is_at_most_12_percent_and_the_worst_30(results):
    of_all = published.summary(list(results.values()))["all"]
    assert of_all["median_error"] <= 0.12
    assert of_all["worst_error"] <= 0.30


def test_half_of_the_points_are_kept_for_testing(results):
    fitted = [result for result in results.values() if result.fitted]
    assert abs(len(results) - 2 * len(fitted)) <= 1


def test_the_constants_are_what_the_fitting_half_says():
    chosen = [point for point in published.POINTS if published.is_fitted(point)]
    fitted = published.fit(published.kept(), chosen)
    assert CONSTANTS.cycle_factor == pytest.approx(fitted.cycle_factor, rel=0.02)
    assert CONSTANTS.common_memory_gain == pytest.approx(fitted.common_memory_gain, rel=0.02)


def test_the_compiler_sums_the_papers_gradients_in_two_colours():
    facts = published.kept()["paper"]
    largest = max(facts.program.collectives, key=lambda c: c.bytes)
    assert is_two_colour_2d(largest)
    assert largest.bytes > 100e6
    point = next(point for point in published.POINTS if point.name == "paper")
    plan = plan_compiled(point.recipe, parse_pod(point.topology), facts)
    assert plan.gradients.two_colour_2d
    assert "the paper's two-colour 2-D algorithm" in plan.gradients.words
    assert plan.fits


def test_a_fresh_check_compiles_every_point_again_and_keeps_that(monkeypatch, tmp_path):
    shipped, asked = published.kept(), []
    monkeypatch.setattr(published, "_KEPT", shutil.copy(published._KEPT, tmp_path / "published.json"))
    monkeypatch.setattr(compiling, "libtpu_version", lambda: "new")

    def compiled(recipe, pod, stage, *, fresh):
        asked.append((recipe.name, fresh))
        return replace(shipped[recipe.name], versions={"libtpu": "new"})

    monkeypatch.setattr(compiling, "compiled", compiled)
    results = published.check(lambda stage: None, fresh=True)
    assert asked == [(point.name, True) for point in published.POINTS]
    assert {result.compiled_with for result in results} == {"libtpu new"}
    assert {facts.versions["libtpu"] for facts in published.kept().values()} == {"new"}


def test_a_fresh_check_without_the_compiler_says_so(monkeypatch):
    monkeypatch.setattr(compiling, "libtpu_version", lambda: None)
    with pytest.raises(UserError, match="libtpu is not installed"):
        published.check(lambda stage: None, fresh=True)
