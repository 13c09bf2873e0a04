"""Runs a job of small Python programs and prints how it ended. A process of its own: `Job` forks, and a test process
that has JAX's threads must not. The clock is this file's, moved by the job's own sleep.

    python -m tests.support.jobs '{"programs": ["", "raise SystemExit(3)"], "let_end": true, "signal": null}'
"""

import json
import signal
import subprocess
import sys
from functools import partial

from tests.support.clock import Clock

from podium.processes.job import Job

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    clock = Clock(0.0)
    handler = signal.getsignal(signal.SIGTERM)
    starts = [partial(subprocess.Popen, [sys.executable, "-S", "-c", p]) for p in given["programs"]]
    with Job(starts, clock=clock, sleep=clock.advance) as job:
        if given["signal"]:
            signal.raise_signal(given["signal"])
        for process in job._processes if given["let_end"] else ():
            process.wait()
        ended = job.wait()
    told = {
        "code": ended.code,
        "how": ended.how,
        "codes": [process.returncode for process in job._processes],
        "waited_seconds": clock.now,
        "was_signalled": job.was_signalled,
        "handler_is_back": signal.getsignal(signal.SIGTERM) == handler,
    }
    print(json.dumps(told))
