"""Whole runs on small data: records, resume, evaluation, and every way a run can be refused."""

import contextlib
import json
import math

import numpy as np
import pytest
from tests.support.full_disk import full_disk
from tests.support.small_runs import At, Heard, small_recipe

from podium.errors import UserError
from podium.recipe.reading import load_recipe
from podium.recipe.torus import Shape
from podium.report import events
from podium.train.loop import evaluation_steps
from podium.train.run import train_recipe
from podium.train.trained_model import _for_evaluation, open_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(small_data, tmp_path_factory):
    run, heard = tmp_path_factory.mktemp("runs") / "first", Heard()
    summary = train_recipe(small_recipe(), small_data, run, listener=heard)
    return run, summary, heard


def test_a_run_learns_and_tells(finished):
    run, summary, heard = finished
    progress, evaluations = heard.of(events.Progress), heard.of(events.Evaluated)
    assert [p.step for p in progress] == list(range(1, 25))
    assert [e.step for e in evaluations] == [12, 24]
    assert all(e.images == 22 for e in evaluations)
    assert progress[-1].metrics["loss"] < progress[0].metrics["loss"]
    assert summary.accuracy == evaluations[-1].top1 > 0.5
    assert 0 <= summary.input_bound <= 1
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines].count("train") == 24
    assert lines[-1]["accuracy"] == summary.accuracy
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))


def test_every_step_reports_its_own_learning_rate_and_epoch(finished):
    """Six steps of warm-up from 0, then half a cosine over the other eighteen."""
    _, _, heard = finished
    progress = heard.of(events.Progress)
    warm = [0.05 * k / 6 for k in range(6)]
    decayed = [0.05 * (1 + math.cos(math.pi * k / 18)) / 2 for k in range(18)]
    assert [p.metrics["learning_rate"] for p in progress] == pytest.approx(warm + decayed, rel=1e-5, abs=1e-9)
    assert [p.epoch for p in progress] == pytest.approx([k / 6 for k in range(1, 25)])
    assert [e.epoch for e in heard.of(events.Evaluated)] == [2.0, 4.0]


def test_a_finished_run_evaluates_to_the_same_accuracy(finished):
    run, summary, _ = finished
    trained = open_run(run)
    assert trained.steps == 24
    assert trained.evaluate().top1 == summary.accuracy


def test_predict_gives_probabilities_and_names_a_broken_file(finished, small_data, tmp_path):
    from podium.data.dataset.shards import ImageSet

    trained, images = open_run(finished[0]), ImageSet.open(small_data, "validation")
    good, broken = tmp_path / "good.jpg", tmp_path / "broken.jpg"
    good.write_bytes(images.image(0).tobytes())
    broken.write_bytes(b"not an image")
    probabilities = trained.predict([good, good])
    assert probabilities.shape == (2, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    with pytest.raises(UserError, match=r"broken\.jpg cannot be decoded"):
        trained.predict([good, broken])


def test_a_run_directory_with_other_work_is_left_alone(finished, small_data, tmp_path):
    with pytest.raises(UserError, match=r"holds a different run \(seed 0 → 1\)"):
        train_recipe(small_recipe(seed=1), small_data, finished[0])
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not empty and holds no run"):
        train_recipe(small_recipe(), small_data, other)
    assert [file.name for file in other.iterdir()] == ["thesis.tex"]


def test_an_unwritable_place_is_one_clear_line(small_data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"could not be written: .*; choose another --run"):
        train_recipe(small_recipe(), small_data, tmp_path / "file" / "run")


def test_a_full_disk_ends_a_run_in_one_line(small_data, tmp_path):
    """Every write to a file fails from the report of step 3 on, before there is a checkpoint."""
    line = r"run/metrics\.jsonl could not be written: File too large; make room or make it writable, then run"
    with contextlib.ExitStack() as filled:
        fill = At(3, lambda: filled.enter_context(full_disk()))
        with pytest.raises(UserError, match=line):
            train_recipe(small_recipe(), small_data, tmp_path / "run", listener=fill)


def test_a_full_disk_at_the_start_and_at_the_end_is_one_line_too(small_data, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(UserError, match=r"summary\.json could not be written: Is a directory; make room"):
        train_recipe(small_recipe(), small_data, run, listener=At(24, (run / "summary.json").mkdir))
    (run / "summary.json").rmdir()
    for room_bytes, file in ((0, "lock"), (200, "run.json")):
        told = pytest.raises(UserError, match=rf"{file} could not be written: File too large; make room")
        with full_disk(room_bytes), told:
            train_recipe(small_recipe(torus="1x1"), small_data, run)


def test_evaluations_end_with_dispatches():
    r = small_recipe(steps_per_dispatch=4, evaluate_every_epochs=1.5).for_data(3, 96, 22)
    assert r.train_steps == 24
    assert evaluation_steps(r) == {8, 16, 24}
    assert all(step % 4 == 0 for step in evaluation_steps(r))


def test_evaluations_keep_to_epochs_that_are_no_whole_number_of_steps():
    # 390.6 steps an epoch: rounded once, the fifth would come one step before the end.
    r = load_recipe("cifar10-sgd", ["epochs=10"])
    assert sorted(evaluation_steps(r)) == [781, 1562, 2344, 3125, 3906]


def test_evaluation_that_misses_an_image_fails_the_run(finished, monkeypatch):
    trained = open_run(finished[0])
    from podium.data.input import loader

    original = loader.EvalLoader.fill

    def loses_one(self, batch, index):
        original(self, batch, index)
        batch["label"][0] = -1

    monkeypatch.setattr(loader.EvalLoader, "fill", loses_one)
    with pytest.raises(RuntimeError, match="counted 20 images of 22"):
        trained.evaluate()


def test_a_pods_run_is_evaluated_on_whatever_is_here():
    pod = load_recipe("resnet50-32k")
    here = _for_evaluation(pod, Shape(1, 3))
    assert (here.torus, here.batch_global, here.model.norm_span) == ("1x3", 768, 256)
    assert _for_evaluation(small_recipe(), Shape(4, 8)).batch_global == 32  # more chips than a batch has images
