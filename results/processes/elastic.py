"""A job on four hosts that loses one and continues on three, again and again: how soon the loss is named, the next
start reports and its first step is made. Each host in turn has its link cut between network namespaces, that of process
0 among them; it is mended when the job has trained on three, and all four must train before the next is cut. With
--slurm a node of a real Slurm loses its power as well. Prints JSON. Needs root.

    PYTHONPATH=. python results/processes/elastic.py [--lose 1 2 3 0] [--slurm]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.in_turn import Job, small_images
from tests.support import elastic, namespaces
from tests.support import slurm as one_machine
from tests.support.slurm import until

from podium.host.machine import describe_machine
from podium.report.starts import read_starts


def on_namespaces(folder: Path, data: Path, lose: Sequence[int]) -> list[dict[str, Any]]:
    found = []
    with namespaces.joined(4) as hosts:
        hosts.cut(hosts.names[3])  # the programs of three are compiled first, as they are after a first loss
        arguments = elastic.arguments(folder, data)
        job = Job(folder, "run", hosts, arguments, launch=("--min-processes", "3"))
        try:
            job.trains(0)
            hosts.mend(hosts.names[3])
            job.trains(1)
            for number, name in enumerate(hosts.names[k] for k in lose):
                found.append(lost(job, hosts, name, start=2 * number + 2))
                print(found[-1], file=sys.stderr, flush=True)
                hosts.mend(name)
                job.trains(2 * number + 3)
        finally:
            job.process.terminate()
            job.process.wait()
    return found


def lost(job: Job, hosts: namespaces.Namespaces, name: str, *, start: int) -> dict[str, Any]:
    said = len(job.lines())
    began = time.time()
    hosts.cut(name)

    def named() -> str:
        return next((line for line in job.lines()[said:] if "same command resumes" in line or "no longer" in line), "")

    line = until(named, job.alive)
    named_seconds = time.time() - began
    first_step = job.trains(start) - began
    told = read_starts(job.run)[start]
    assert told["torus"] == "1x3", told
    return {
        "host": name.rpartition(".")[2],
        "named": line,
        "named_seconds": round(named_seconds, 1),
        "started_seconds": round(told["time"] - began, 1),
        "first_step_seconds": round(first_step, 1),
    }


def on_slurm(folder: Path, data: Path) -> dict[str, Any]:
    with one_machine.started(folder) as slurm:
        told = elastic.on_slurm(slurm, folder, data)
    return {"starts": told.starts, "first_step_seconds": told.loss_to_step_seconds}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lose", type=int, nargs="+", default=[1, 2, 3, 0], help="0 is the coordinator's")
    parser.add_argument("--slurm", action="store_true")
    given = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="podium-elastic-") as folder:
        losses = on_namespaces(Path(folder), small_images(Path(folder)), given.lose)
    about: dict[str, Any] = {
        "command": " ".join(["PYTHONPATH=. python", *sys.argv]),
        "commit": commit,
        "machine": {name: value for name, value in describe_machine().items() if name != "host"},
        "namespaces": losses,
    }
    if given.slurm:
        with tempfile.TemporaryDirectory(prefix="podium-elastic-") as folder:
            about["slurm"] = on_slurm(Path(folder), small_images(Path(folder)))
    print(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
