"""The watchdog ends a process that hangs, whatever else is wrong with the machine."""

import subprocess
import sys

import pytest

from podium.errors import EXIT_HUNG
from podium.train.watchdog import Watchdog

# Ends with code 0 if the watchdog dies instead of ending it.
HANGS = """
import os, sys, threading
os.environ["JAX_PLATFORMS"] = "cpu"
from pathlib import Path
from podium.train.watchdog import Watchdog
with Watchdog(Path(sys.argv[1]), stall_minutes=0.2 / 60, look_seconds=0.1) as watchdog:
    watchdog.moved("training, step 1")
    next(thread for thread in threading.enumerate() if thread.name == "podium-watchdog").join()
"""


@pytest.mark.slow
def test_a_run_that_hangs_ends_though_its_stacks_cannot_be_written(tmp_path):
    ended = subprocess.run([sys.executable, "-c", HANGS, str(tmp_path / "gone")], capture_output=True, text=True)
    assert ended.returncode == EXIT_HUNG, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "nothing moved for 0 s: training, step 1; raise --stall-minutes" in ended.stderr
    assert "stacks could not be written to" in ended.stderr
    assert "gone/stacks-0.txt (No such file or directory)" in ended.stderr


@pytest.mark.slow
def test_a_run_that_hangs_ends_though_nothing_can_be_said(tmp_path):
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", HANGS, str(tmp_path)], stderr=full)
    assert ended.returncode == EXIT_HUNG
    assert "in _watch" in (tmp_path / "stacks-0.txt").read_text()


def looks(watchdog, count):
    return [watchdog.look() for _ in range(count)]


def test_a_run_that_moves_is_left_alone_and_one_that_stops_is_ended_after_its_patience(tmp_path):
    watchdog = Watchdog(tmp_path, stall_minutes=5 / 60)
    assert looks(watchdog, 100) == [None] * 100  # compiling takes as long as it takes
    for step in range(1, 4):
        watchdog.moved(f"training, step {step}")
        assert looks(watchdog, 5) == [None] * 5
    told = "nothing moved for 5 s: training, step 3; raise --stall-minutes if a step may take so long"
    assert watchdog.look() == told
    assert watchdog._with_stacks(told) == f"{told}; stacks in {tmp_path}/stacks-0.txt"
    assert "test_watchdog.py" in (tmp_path / "stacks-0.txt").read_text()


def test_patience_starts_again_with_each_move(tmp_path):
    watchdog = Watchdog(tmp_path, stall_minutes=3 / 60)
    for step in range(5):
        watchdog.moved(f"training, step {step}")
        assert looks(watchdog, 3) == [None] * 3
    assert "step 4" in str(watchdog.look())


@pytest.mark.parametrize(("stall_minutes", "look_seconds", "patience_looks"), [(1.0, 1.0, 60), (1.0, 0.5, 120)])
def test_patience_is_a_time_however_often_one_looks(tmp_path, stall_minutes, look_seconds, patience_looks):
    watchdog = Watchdog(tmp_path, stall_minutes, look_seconds=look_seconds)
    watchdog.moved("training, step 1")
    assert looks(watchdog, patience_looks) == [None] * patience_looks
    assert "nothing moved for 60 s" in str(watchdog.look())
