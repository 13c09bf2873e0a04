"""A run that has ended: the same command again succeeds and changes nothing; more epochs extend it, in the same
directory; --run alone knows the rest; --dry-run says what would happen."""

import json
import shutil
from dataclasses import replace

import pytest
from tests.support.small_runs import Heard, small_recipe

from podium.cli.arguments.train import Train
from podium.cli.train import train
from podium.errors import Stopped, UserError
from podium.report.events import Evaluated
from podium.report.history import read_history
from podium.report.starts import read_starts
from podium.train.run import Limits, train_recipe

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ended(small_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("ended") / "run"
    return run, train_recipe(small_recipe(), small_data, run)


@pytest.fixture
def run(ended, tmp_path):
    """A copy, to be changed."""
    shutil.copytree(ended[0], tmp_path / "run")
    return tmp_path / "run"


def test_the_same_again_gives_the_same_summary_and_trains_nothing(ended, run, small_data):
    heard, before = Heard(), (run / "metrics.jsonl").read_bytes()
    again = train_recipe(small_recipe(torus="1x1"), small_data, run, listener=heard)
    assert again == ended[1]
    assert any("is finished already; --set epochs=… extends it" in note for note in heard.of(str))
    assert (run / "metrics.jsonl").read_bytes() == before


def test_more_epochs_extend_it_from_its_end(run, small_data):
    heard = Heard()
    summary = train_recipe(small_recipe(epochs=5), small_data, run, listener=heard)
    assert summary.steps == 30
    assert "resumes with epochs 4.0 → 5.0" in heard.of(str)
    assert [event.step for event in heard.of(Evaluated)][-1] == 30
    history = read_history(run)
    assert [line["step"] for line in history.train] == list(range(1, 31))
    assert [start["first_step"] for start in read_starts(run)] == [0, 24]
    assert json.loads((run / "run.json").read_text())["recipe"]["epochs"] == 5
    with pytest.raises(UserError, match=r"is finished, after 5 epochs; --set epochs=3 lies before that: give more"):
        train_recipe(small_recipe(epochs=3), small_data, run)


def test_the_directory_alone_is_enough_to_resume_and_to_extend(small_data, tmp_path, capsys):
    run = tmp_path / "run"
    with pytest.raises(Stopped):
        train_recipe(small_recipe(), small_data, run, limits=Limits(max_minutes=1e-6))
    told = train(Train(run=run, dry_run=True))
    assert "resumes after step" in told["run"]
    assert "96 training and 22 validation images of 3 classes" in told["data"]
    assert "24 steps, 2 evaluations, a checkpoint every 4 steps" in told["training"]
    assert "network: resnet8, 3 classes, 16 px; frozen: none; starts from random numbers" in capsys.readouterr().out
    assert train(Train(run=run))["steps"] == 24
    assert train(Train(run=run, dry_run=True))["run"].endswith("is finished, after step 24")
    assert train(Train(run=run, set=("epochs=5",)))["steps"] == 30


def test_a_dry_run_writes_nothing(small_data, tmp_path):
    command = Train(recipe="demo", data=str(small_data), run=tmp_path / "run", dry_run=True)
    assert train(command)["run"] == f"run: {tmp_path / 'run'} is made"
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_refuses_weights_that_do_not_fit(ended, small_data):
    command = Train(recipe="demo", data=str(small_data), weights=str(ended[0]), dry_run=True)
    told = train(replace(command, set=("model.name=resnet8", "data.image_size=16")))["network"]
    assert "starts from " in told
    assert "its classifier too" in told
    with pytest.raises(UserError, match=r"does not fit model\.name=resnet18"):
        train(replace(command, set=("model.name=resnet18",)))
