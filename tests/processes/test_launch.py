"""podium launch with real processes over loopback: one is killed, all are stopped, one hangs."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from tests.support.processes import RECIPE, ended, metrics, podium, two_of

from podium.errors import EXIT_HUNG, EXIT_STOPPED, UserError
from podium.processes.launch import launch

pytestmark = pytest.mark.slow


@pytest.fixture
def launched(tmp_path, small_data):
    """Starts `podium launch` of two processes on a run."""
    (tmp_path / "small.toml").write_text(
        RECIPE.replace("rate = 2.0", "rate = 0.2").replace(
            "\nepochs = 2", '\nepochs = 10\nmax_lost_steps = 4\nreduce = "xla"'
        )
    )

    def start(run, *options):
        train = ["train", "--recipe", f"{tmp_path}/small.toml", "--data", str(small_data), "--run", str(run)]
        return podium("launch", "-n", "2", "--json", *options, "--", *train)

    return start


def reached(process, run, step):
    """Waits until a run has reported `step`."""
    while True:
        if (run / "metrics.jsonl").exists() and any(line["step"] >= step for line in metrics(run)):
            return
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"ended before step {step}: {process.communicate()[1]}")


def pid_of(number, run):
    """The process of a run that was started as `--process NUMBER`."""
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if str(run) in line and line[-2:] == ["--process", str(number)]:
            return process.pid
    raise LookupError(number)


def test_processes_that_are_stopped_and_killed_end_with_the_same_weights(launched, tmp_path):
    whole = ended(launched(tmp_path / "whole"))
    assert whole.code == 0, whole.err

    run = tmp_path / "run"
    process = launched(run)
    reached(process, run, 5)
    process.send_signal(signal.SIGTERM)
    stopped = ended(process)
    assert stopped.code == EXIT_STOPPED, stopped.err
    said = json.loads(stopped.out.splitlines()[-1])
    assert said["stopped"] == "SIGTERM"

    process = launched(run, "--restarts", "1")
    reached(process, run, said["step"] + 2)
    os.kill(pid_of(1, run), signal.SIGKILL)
    killed = ended(process)
    assert killed.code == 0, killed.err
    assert "podium: process 1 of 2 was ended by SIGKILL; restarting (1 of 1)" in killed.err
    hashes = [json.loads(end.out.splitlines()[-1])["weights_hash"] for end in (whole, killed)]
    assert hashes[0] == hashes[1]
    assert [line["step"] for line in metrics(run)] == list(range(1, 61))


def test_a_job_that_is_told_to_end_is_not_started_again(launched, tmp_path):
    process = launched(tmp_path / "run", "--restarts", "3")
    while True:  # as soon as there is a process, which does not listen yet
        with contextlib.suppress(LookupError):
            pid_of(1, tmp_path / "run")
            break
    process.send_signal(signal.SIGTERM)
    stopped = ended(process)
    assert stopped.code == 128 + signal.SIGTERM
    assert "restarting" not in stopped.err


def test_a_time_limit_that_leaves_no_time_for_an_evaluation_stops_before_it(small_data, tmp_path):
    """The first evaluation claims to have taken days. A request counts two dispatches later, and is made in time."""
    program = """
import dataclasses, sys
from podium.host import compile_cache
from podium.processes.join import Cluster, join
from podium.train import loop
from podium.train.run import Limits, train_recipe
from tests.support.small_runs import small_recipe
class Evaluator(loop.Evaluator):
    def __call__(self, *arguments, **named):
        return dataclasses.replace(super().__call__(*arguments, **named), seconds=1e6)
loop.Evaluator = Evaluator
address, process, data, run = sys.argv[1:]
join(Cluster(address, 2, int(process)))
compile_cache.enable()
train_recipe(small_recipe(evaluate_every_epochs=1), data, run, limits=Limits(max_minutes=1000))
"""
    for end in two_of(program, str(small_data), str(tmp_path / "run")):
        assert "Stopped: time limit: stopped after step 12, which is saved" in end.err
    assert [line["step"] for line in metrics(tmp_path / "run", "evaluation")] == [6]


def test_a_process_that_hangs_is_named_and_every_stack_written(small_data, tmp_path):
    """Process 0 hangs while it reports step 2, two dispatches later; process 1 gets to a checkpoint. The limit leaves
    time for a sign and a verdict, which come every two seconds each."""
    program = """
import sys, threading
from podium.host import compile_cache
from podium.processes.join import Cluster, join
from podium.train.run import Limits, train_recipe
from tests.support.small_runs import At, small_recipe
address, process, data, run = sys.argv[1:]
join(Cluster(address, 2, int(process)))
compile_cache.enable()
hang = At(2, threading.Event().wait)
train_recipe(small_recipe(), data, run, listener=hang, limits=Limits(stall_minutes=8 / 60))
"""
    ends = [(end.err, end.code) for end in two_of(program, str(small_data), str(tmp_path / "run"))]
    assert EXIT_HUNG in [code for _, code in ends], ends  # the one that ends first may take the other with it
    told = next(err for err, code in ends if code == EXIT_HUNG)
    assert "nothing moved for 8 s: process 0 (" in told
    assert "training, step 4) did not reach where the others are: saving after step 4" in told
    assert "in _watch" in next((tmp_path / "run").glob("stacks-*.txt")).read_text()


WAITS = "import signal; signal.pause()"
FAILS = "raise SystemExit(3)"
HANGS_UP = f"raise SystemExit({EXIT_HUNG})"
IS_KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
ABORTS = "import os; os.abort()"


def job(*programs, let_end=False, number=None):
    """How a job of small Python programs ends; with `let_end` all have ended before the job looks."""
    given = json.dumps({"programs": programs, "let_end": let_end, "signal": number})
    done = subprocess.run([sys.executable, "-m", "tests.support.jobs", given], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def test_all_that_succeed_are_a_success():
    ended = job("", "")
    assert (ended["code"], ended["how"]) == (0, "all processes succeeded")


def test_the_others_have_fifteen_seconds_to_end_and_are_then_killed():
    ended = job(WAITS, FAILS, WAITS)
    assert (ended["code"], ended["how"]) == (3, "process 1 of 3 ended with exit code 3")
    assert ended["codes"] == [-signal.SIGKILL, 3, -signal.SIGKILL]
    assert ended["waited_seconds"] >= 15.0


def test_nobody_waits_when_all_have_ended():
    ended = job(FAILS, "", let_end=True)
    assert (ended["code"], ended["waited_seconds"]) == (3, 0.0)


@pytest.mark.parametrize(
    ("programs", "code", "how"),
    [
        ((HANGS_UP, FAILS), 3, "process 1 of 2 ended with exit code 3"),
        ((ABORTS, IS_KILLED), 128 + signal.SIGKILL, "process 1 of 2 was ended by SIGKILL"),
        ((HANGS_UP, ""), EXIT_HUNG, f"process 0 of 2 ended with exit code {EXIT_HUNG}"),
    ],
    ids=["noticed a loss", "aborted by JAX", "hung alone"],
)
def test_the_process_whose_end_explains_the_others_is_named(programs, code, how):
    ended = job(*programs, let_end=True)
    assert (ended["code"], ended["how"]) == (code, how)


def test_a_signal_is_passed_on_to_all_and_the_handlers_are_put_back():
    ended = job(WAITS, WAITS, number=signal.SIGTERM)
    assert ended["was_signalled"]
    assert ended["code"] == 128 + signal.SIGTERM
    assert ended["codes"] == [-signal.SIGTERM] * 2
    assert ended["handler_is_back"]


def test_what_cannot_be_launched_is_refused_in_one_line():
    with pytest.raises(UserError, match="-n 0 must be at least 1"):
        launch(("train",), 0, restarts=0, say=print)
    with pytest.raises(UserError, match="podium launch starts podium train"):
        launch(("eval", "run"), 2, restarts=0, say=print)
    with pytest.raises(UserError, match="--restarts needs to know which run"):
        launch(("train",), 2, restarts=1, say=print)
