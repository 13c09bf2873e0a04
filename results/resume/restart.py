"""From the start of a process to its first step, for the demo: a run is stopped with SIGTERM and started again several
times, its programs being in the compilation cache. Prints JSON.

    python results/resume/restart.py RUN_DIRECTORY
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

RESTARTS = 5


def last_step(run: Path) -> int:
    file = run / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def seconds_to_first_step(run: Path) -> float:
    before, began = last_step(run), time.perf_counter()
    command = [sys.executable, "-m", "podium", "train", "--json", "--run", str(run), "--set", "log_every_steps=1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while last_step(run) <= before:
        time.sleep(0.01)
    seconds = time.perf_counter() - began
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 75
    return round(seconds, 2)


if __name__ == "__main__":
    run = Path(sys.argv[1])
    first = seconds_to_first_step(run)
    print(
        json.dumps({"start_seconds": first, "restart_seconds": [seconds_to_first_step(run) for _ in range(RESTARTS)]})
    )
