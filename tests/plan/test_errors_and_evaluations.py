"""Errors count in both directions, and evaluations need their input as training does."""

from dataclasses import replace

import pytest

from podium.plan import published
from podium.plan.estimate import Constants, estimate
from podium.plan.hlo import Program
from podium.plan.libtpu import Compiled
from podium.plan.machines import parse_pod
from podium.plan.published import Checked, Point, summary
from podium.recipe.reading import load_recipe

RECIPE, POD = load_recipe("resnet50-32k"), parse_pod("v3:32x32")


def checked(predicted: float, fitted: bool = False) -> Checked:
    point = Point("made up", "v3:4x4", 4096, 128, 60, 1000.0, "nowhere")
    return Checked(point, fitted, predicted, "libtpu test")


def test_a_prediction_below_the_published_figure_is_as_wrong_as_one_above():
    below, above = (summary([checked(predicted, fitted) for fitted in (True, False)]) for predicted in (500, 1500))
    assert below == above
    assert below["all"] == {"median_error": 0.5, "worst_error": 0.5, "points": 2}


def test_the_worst_error_is_the_farthest_on_either_side():
    results = [checked(400, fitted=True), checked(900), checked(1050), checked(1200)]
    found = summary(results)
    assert [r.error for r in results] == pytest.approx([-0.6, -0.1, 0.05, 0.2])
    assert found["all"]["worst_error"] == pytest.approx(0.6)
    assert found["all"]["median_error"] == pytest.approx(0.15)
    assert found["fitted"] == {"median_error": pytest.approx(0.6), "worst_error": pytest.approx(0.6), "points": 1}
    assert found["tested"]["worst_error"] == pytest.approx(0.2)
    assert found["tested"]["points"] == 3


def test_the_published_check_has_errors_on_both_sides():
    """So that a summary of the real points, too, would tell if one side were left out."""
    errors = [result.error for result in published.check(lambda stage: None).points]
    assert min(errors) < 0 < max(errors)
    assert summary(published.check(lambda stage: None).points)["all"]["worst_error"] == max(map(abs, errors))


def planned(images_per_second_per_cpu_core: float | None):
    """30 ms of device time a step: 29 of computing, of which an evaluation takes the forward third, and 1 of update."""
    program = Program(28_200_000, 940_000, 0, ())
    facts = Compiled(program, 1e12, 1e9, 2**30, 60.0, 5.0, {"libtpu": "test"}, "key")
    constants = Constants(cycle_factor=1.0, hop_seconds=0.0)
    return estimate(RECIPE, POD, facts, cpu_images_per_second=images_per_second_per_cpu_core, constants=constants)


BATCHES_EVALUATED = 2 * 23  # 50,000 images are two batches of 32,768; 90 epochs, evaluated every fourth


def test_an_evaluation_whose_images_come_slowly_takes_as_long_as_they_do():
    """The hosts, 256 of 96 cores, decode a batch of training in 20 ms: training waits for the devices' 30 ms, an
    evaluation, whose devices would need 9.67 ms a batch, for its images."""
    rate = RECIPE.batch_global / 0.020 / (256 * 96)
    e = planned(rate)
    assert e.limit == "compute"
    assert e.step_seconds == pytest.approx(0.030)
    assert e.evaluation_seconds == pytest.approx(BATCHES_EVALUATED * 0.020)


def test_an_evaluation_with_images_enough_takes_the_forward_third():
    for e in (planned(None), planned(RECIPE.batch_global / 0.001 / (256 * 96))):
        assert e.evaluation_seconds == pytest.approx(BATCHES_EVALUATED * 0.029 / 3)


def test_training_time_and_both_rates_follow_from_the_step():
    e = planned(None)
    steps = 1_281_167 / 32_768
    assert e.warmup_seconds == pytest.approx(steps * 0.030)
    assert e.train_seconds == pytest.approx(91 * steps * 0.030 + e.evaluation_seconds)
    assert e.images_per_second_evaluated == pytest.approx(90 * 1_281_167 / (90 * steps * 0.030 + e.evaluation_seconds))


def test_fewer_evaluations_take_less():
    rarely = replace(RECIPE, evaluate_every_epochs=45.0)
    program = Program(28_200_000, 940_000, 0, ())
    facts = Compiled(program, 1e12, 1e9, 2**30, 60.0, 5.0, {"libtpu": "test"}, "key")
    e = estimate(rarely, POD, facts, constants=Constants(cycle_factor=1.0, hop_seconds=0.0))
    assert e.evaluation_seconds == pytest.approx(2 * 2 * 0.029 / 3)
