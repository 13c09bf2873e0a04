"""Real processes with a real coordinator, of which one is frozen or killed: the others name it and end with code 70,
their stacks written. Process 0 keeps the coordinator, so that with it goes what the others ask."""

import os
import signal
import subprocess
import sys

import pytest
from tests.support.processes import free_port

from podium.errors import EXIT_HUNG

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, threading
from pathlib import Path
from podium.processes import agree
from podium.processes.join import Cluster, join
from podium.train.watchdog import Watchdog
address, process, run = sys.argv[1:]
join(Cluster(address, 3, int(process)))
with Watchdog(Path(run), stall_minutes=10, look_seconds=0.2) as watchdog:
    watchdog.moved("training, step 1")
    agree.meet()
    print("watching", file=sys.stderr, flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("gone", [0, 1])
def test_the_one_that_is_gone_is_named_by_all_others(tmp_path, gone, number):
    address = f"127.0.0.1:{free_port()}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address, str(process), str(tmp_path)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )
        for process in range(3)
    ]
    for process in processes:
        assert process.stderr is not None
        while "watching" not in (line := process.stderr.readline()):
            assert line, "ended before it watched"
    processes[gone].send_signal(number)
    ends = [process.communicate()[1] for k, process in enumerate(processes) if k != gone]
    processes[gone].kill()
    processes[gone].communicate()
    for left, told in zip((left for left in range(3) if left != gone), ends, strict=True):
        line = told.splitlines()[-1]
        assert processes[left].returncode == EXIT_HUNG, told
        assert line.startswith(f"podium: process {left}: process {gone}")
        assert f"stacks in {tmp_path}/stacks-{left}.txt" in line
        assert "Thread" in (tmp_path / f"stacks-{left}.txt").read_text()
