"""The watchdog ends a process that hangs, whatever else is wrong with the machine."""

import subprocess
import sys

from podium.errors import EXIT_HUNG

# Ends with code 0 if the watchdog dies instead of ending it.
HANGS = """
import os, sys, threading
os.environ["JAX_PLATFORMS"] = "cpu"
from pathlib import Path
from podium.train.watchdog import Watchdog
with Watchdog(Path(sys.argv[1]), stall_minutes=1 / 60) as watchdog:
    watchdog.moved("training, step 1")
    next(thread for thread in threading.enumerate() if thread.name == "podium-watchdog").join()
"""


def test_a_run_that_hangs_ends_though_its_stacks_cannot_be_written(tmp_path):
    ended = subprocess.run([sys.executable, "-c", HANGS, str(tmp_path / "gone")], capture_output=True, text=True)
    assert ended.returncode == EXIT_HUNG, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "nothing moved for 1 s: training, step 1; stacks could not be written to" in ended.stderr
    assert "gone/stacks-0.txt (No such file or directory)" in ended.stderr


def test_a_run_that_hangs_ends_though_nothing_can_be_said(tmp_path):
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", HANGS, str(tmp_path)], stderr=full)
    assert ended.returncode == EXIT_HUNG
    assert "in _watch" in (tmp_path / "stacks-0.txt").read_text()
