"""A run that was stopped, by whatever, and resumes: to the same weights, on other chips, on a different course."""

import dataclasses
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from tests.support.small_runs import At, Heard, small_recipe

from podium.errors import Stopped, UserError
from podium.host.sealed import unseal, write_sealed
from podium.mesh import build_mesh
from podium.recipe.optimization import Lars
from podium.recipe.torus import Shape, lay_out
from podium.report import events
from podium.step.programs import build_step
from podium.train import run_directory
from podium.train.checkpoint import Checkpoints
from podium.train.loop import checkpoint_steps, restored
from podium.train.meter import Meter
from podium.train.run import Limits, train_recipe
from podium.train.trained_model import open_run

pytestmark = pytest.mark.slow


class Crash(Exception):
    pass


def crash():
    raise Crash


@pytest.fixture(scope="module")
def whole(small_data, tmp_path_factory):
    """A run that was never stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    return run, train_recipe(small_recipe(), small_data, run)


def crashed(small_data, run, step, recipe=None):
    with pytest.raises(Crash):
        train_recipe(recipe or small_recipe(), small_data, run, listener=At(step, crash))
    return run


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_crashed_run_goes_on_to_the_same_weights_and_records(whole, small_data, tmp_path):
    run, heard = crashed(small_data, tmp_path / "run", 18), Heard()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"event": "train", "st')  # killed while writing
    summary = train_recipe(small_recipe(), small_data, run, listener=heard)
    assert heard.of(events.Started)[0].first_step == 16
    assert summary.weights_hash == whole[1].weights_hash
    want, got = (jax.device_get(open_run(r).state) for r in (whole[0], run))
    jax.tree.map(np.testing.assert_array_equal, want, got)
    exact = ("event", "step", "epoch", "loss", "top1", "learning_rate")
    want, got = ([{key: line.get(key) for key in exact} for line in lines_of(r)] for r in (whole[0], run))
    assert got == want


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(whole, small_data, tmp_path):
    run, heard = crashed(small_data, tmp_path / "run", 15), Heard()
    with Checkpoints(run) as checkpoints:
        assert checkpoints.steps() == [4, 8, 12]
    data = max((run / "checkpoints" / "12" / "state").rglob("*"), key=lambda f: f.is_file() and f.stat().st_size)
    data.write_bytes(data.read_bytes()[:-1])
    summary = train_recipe(small_recipe(), small_data, run, listener=heard)
    (note,) = (n for n in heard.of(str) if "damaged" in n)
    assert f"{run}/checkpoints/12 is damaged (state/" in note
    assert heard.of(events.Started)[0].first_step == 8
    assert summary.weights_hash == whole[1].weights_hash


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops(whole, small_data, tmp_path, number):
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match=f"{number.name}: stopped after step") as stopped:
        train_recipe(small_recipe(), small_data, tmp_path / "run", listener=At(5, lambda: signal.raise_signal(number)))
    assert signal.getsignal(number) == before
    assert 5 <= stopped.value.step <= 7
    heard = Heard()
    summary = train_recipe(small_recipe(), small_data, tmp_path / "run", listener=heard)
    assert heard.of(events.Started)[0].first_step == stopped.value.step
    assert summary.weights_hash == whole[1].weights_hash


def test_a_second_signal_ends_the_process_at_once(small_data, tmp_path):
    program = f"""
import os, signal
os.environ["JAX_PLATFORMS"] = "cpu"
from podium.train.run import train_recipe
from tests.support.small_runs import At, small_recipe
twice = lambda: [signal.raise_signal(signal.SIGTERM) for _ in range(2)]
train_recipe(small_recipe(), {str(small_data)!r}, {str(tmp_path / "run")!r}, listener=At(5, twice))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGTERM
    assert ended.stderr == "SIGTERM: stopping after a checkpoint; a second signal stops at once, without one\n"


def test_a_time_limit_saves_and_stops(small_data, tmp_path):
    with pytest.raises(Stopped, match="time limit: stopped after step 1, which is saved"):
        train_recipe(small_recipe(), small_data, tmp_path / "run", limits=Limits(max_minutes=1e-6))
    with Checkpoints(tmp_path / "run") as checkpoints:
        assert checkpoints.newest_good() == 1


def test_a_time_limit_leaves_time_for_what_was_sent(small_data, tmp_path, monkeypatch):
    monkeypatch.setattr(Meter, "dispatch_seconds", lambda _: 1200.0)
    with pytest.raises(Stopped, match="time limit: stopped after step 1, which is saved"):
        # three dispatches have to end
        train_recipe(small_recipe(), small_data, tmp_path / "run", limits=Limits(max_minutes=60))


def test_an_evaluation_that_is_not_made_again_stays(small_data, tmp_path):
    run = crashed(small_data, tmp_path / "run", 13)
    train_recipe(small_recipe(evaluate_every_epochs=4), small_data, run)
    assert [line["step"] for line in lines_of(run) if line["event"] == "evaluation"] == [12, 24]


def test_momenta_are_taken_over_only_by_the_optimizer_that_made_them(small_data, tmp_path):
    run = crashed(small_data, tmp_path / "run", 10)
    notes: list[str] = []
    sgd = small_recipe().for_data(3, 96, 22)
    lars = dataclasses.replace(sgd, optimizer=Lars("lars", learning_rate=1.0))
    mesh = build_mesh(lay_out(Shape(1, 2), 16, 8), jax.devices()[:2])
    with Checkpoints(run) as checkpoints:
        ours, none = (restored(checkpoints, 8, build_step(r, mesh), recipe=r, note=notes.append) for r in (sgd, lars))
    assert len(notes) == 1
    assert "momenta start at zero" in notes[0]
    assert all(np.any(leaf) for leaf in jax.tree.leaves(ours.slots))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(none.slots))
    jax.tree.map(np.testing.assert_array_equal, ours.params, none.params)


def test_a_run_stopped_while_it_evaluates_evaluates_first_when_it_goes_on(whole, small_data, tmp_path, monkeypatch):
    from podium.data.input import loader

    original = loader.EvalLoader.fill

    def interrupts(self, batch, index):
        if index == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        original(self, batch, index)

    monkeypatch.setattr(loader.EvalLoader, "fill", interrupts)
    with pytest.raises(Stopped, match="SIGTERM: stopped after step 12"):
        train_recipe(small_recipe(), small_data, tmp_path / "run")
    monkeypatch.undo()
    heard = Heard()
    with pytest.raises(Stopped, match="time limit: stopped after step 13"):  # no limit is too short to get on at all
        train_recipe(small_recipe(), small_data, tmp_path / "run", listener=heard, limits=Limits(max_minutes=1e-6))
    train_recipe(small_recipe(), small_data, tmp_path / "run", listener=heard)
    assert [e.step for e in heard.of(events.Evaluated)] == [12, 24]
    assert [line["step"] for line in lines_of(tmp_path / "run") if line["event"] == "evaluation"] == [12, 24]


def test_other_chips_see_the_same_batches(whole, small_data, tmp_path):
    run, heard = crashed(small_data, tmp_path / "run", 10), Heard()
    train_recipe(small_recipe(torus="2x2", bucket_mb=9), small_data, run, listener=heard)
    assert "resumes with bucket_mb 25.0 → 9.0, torus 1x2 → 2x2" in heard.of(str)
    want, got = (np.array([line["loss"] for line in lines_of(r) if line["event"] == "train"]) for r in (whole[0], run))
    np.testing.assert_array_equal(got[:8], want[:8])
    np.testing.assert_allclose(got, want, rtol=2e-4)
    info = open_run(run).info
    assert info.recipe.torus == "2x2"
    assert info.changes == ({"after_step": 8, "changed": ["bucket_mb 25.0 → 9.0", "torus 1x2 → 2x2"]},)


def test_a_changed_recipe_or_data_set_is_refused_with_the_difference(whole, small_data, tmp_path):
    from podium.data.dataset.shards import ImageSet

    images = ImageSet.open(small_data, "train")
    filled_in = small_recipe().for_data(3, 96, 22)
    run_directory.claim(tmp_path / "run", filled_in, images)
    assert run_directory.claim(tmp_path / "run", filled_in, images) == []
    changed = dataclasses.replace(filled_in, seed=1, torus="1x1")
    with pytest.raises(UserError, match=r"holds a different run \(seed 0 → 1\)"):
        run_directory.claim(tmp_path / "run", changed, images)
    assert run_directory.claim(tmp_path / "run", changed, images, from_step=4) == ["seed 0 → 1", "torus 1x2 → 1x1"]
    wider = dataclasses.replace(filled_in, model=dataclasses.replace(filled_in.model, name="resnet14"))
    with pytest.raises(UserError, match=r"model.name resnet8 → resnet14"):
        run_directory.claim(tmp_path / "run", wider, images, from_step=4)
    shorter = dataclasses.replace(filled_in, epochs=2)
    assert run_directory.claim(tmp_path / "run", shorter, images, from_step=12) == ["epochs 4.0 → 2"]
    with pytest.raises(UserError, match="--from-step 13 lies beyond the end of 2 epochs, which are 12 steps"):
        run_directory.claim(tmp_path / "run", shorter, images, from_step=13)
    about = unseal((tmp_path / "run" / "run.json").read_bytes())
    write_sealed(tmp_path / "run" / "run.json", {**about, "data_hash": "other"})
    with pytest.raises(UserError, match=r"holds a different run \(data .* → .*\)"):
        run_directory.claim(tmp_path / "run", filled_in, images)


def test_a_run_in_training_refuses_a_second_one_and_is_not_disturbed(whole, small_data, tmp_path):
    run, refused = tmp_path / "run", []

    def second():
        with pytest.raises(UserError) as told:
            train_recipe(small_recipe(), small_data, run)
        refused.append(str(told.value))

    summary = train_recipe(small_recipe(), small_data, run, listener=At(5, second))
    assert refused == [
        f"{run} is being trained by process {os.getpid()} on {socket.gethostname()}; "
        f"wait for it, stop it or choose another --run"
    ]
    assert summary.weights_hash == whole[1].weights_hash


def test_the_lock_of_another_host_is_waited_for_and_then_named(tmp_path):
    with (tmp_path / "lock").open("w+") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        theirs.write("process 7 on elsewhere")
        theirs.flush()
        said: list[str] = []
        named = pytest.raises(UserError, match=r"process 7 on elsewhere; .* gone for good, remove .*/lock")
        with named, run_directory.hold(tmp_path, said.append, patience=0):
            pass
        assert ["waiting up to 0 s" in line for line in said] == [True]
        with run_directory.hold(tmp_path, say=lambda _: fcntl.flock(theirs, fcntl.LOCK_UN)):
            assert (tmp_path / "lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}"


def test_a_run_that_explodes_keeps_good_checkpoints_and_says_how_to_go_back(small_data, tmp_path):
    steep = {"decay": "steps", "warmup_epochs": 0, "at_epochs": [1.5], "factor": 1e30}
    run = tmp_path / "run"
    with pytest.raises(UserError, match=r"(loss is (nan|inf) at|weight is not finite after) step 1\d; .*") as told:
        train_recipe(small_recipe(schedule=steep), small_data, run)
    way_back = f"checkpoints 4, 8 are kept; to go back, run the same command with --run {run} --from-step 8"
    assert way_back in str(told.value)
    gentle = small_recipe(schedule={"decay": "steps", "warmup_epochs": 0, "at_epochs": [1.5], "factor": 0.1})
    with pytest.raises(UserError, match=r"holds a different run \(schedule.factor 1e\+30 → 0.1\)"):
        train_recipe(gentle, small_data, run)
    with pytest.raises(UserError, match="has no checkpoint of --from-step 5; kept are 4, 8"):
        train_recipe(gentle, small_data, run, limits=Limits(from_step=5))
    heard = Heard()
    train_recipe(gentle, small_data, run, listener=heard, limits=Limits(from_step=4))
    assert heard.of(events.Started)[0].first_step == 4
    assert [line["step"] for line in lines_of(run) if line["event"] == "train"] == list(range(1, 25))


def test_going_back_is_done_once_however_often_the_command_is_repeated(whole, small_data, tmp_path):
    run = crashed(small_data, tmp_path / "run", 15)
    with pytest.raises(Crash):
        train_recipe(small_recipe(), small_data, run, listener=At(11, crash), limits=Limits(from_step=4))
    heard = Heard()
    summary = train_recipe(small_recipe(), small_data, run, listener=heard, limits=Limits(from_step=4))
    assert heard.of(events.Started)[0].first_step == 8
    assert summary.weights_hash == whole[1].weights_hash


def test_half_of_what_may_be_lost_lies_between_checkpoints():
    filled_in = small_recipe(max_lost_steps=13, steps_per_dispatch=2).for_data(3, 96, 22)
    assert list(checkpoint_steps(filled_in)) == [6, 12, 18]
    assert list(checkpoint_steps(dataclasses.replace(filled_in, max_lost_steps=4))) == list(range(2, 24, 2))
