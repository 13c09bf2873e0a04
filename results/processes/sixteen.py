"""Each of 16 real processes of a job, on network namespaces, killed, frozen and cut off in turn: how soon it is named,
how soon the job trains again, and whether the final weights are those of a job left alone. Prints JSON, a line for each
as it happens. Needs root.

    PYTHONPATH=. python results/processes/sixteen.py [--first 0] [--count 16] [--processes 16] [--seed 0]
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.cluster.in_turn import Happened, happen, in_turn, small_images

from podium.host.machine import describe_machine


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0, help="leave out so many turns, which another job has")
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    turns = in_turn(given.processes, given.first + given.count, random.Random(given.seed))[given.first :]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    found: list[Happened] = []
    hashes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="podium-sixteen-") as folder:
        data = small_images(Path(folder))
        for told in happen(Path(folder), data, turns, processes=given.processes, hashes=hashes):
            print(told, file=sys.stderr, flush=True)
            found.append(told)
    about = {
        "command": " ".join(["PYTHONPATH=. python", *sys.argv]),
        "commit": commit,
        "machine": {name: value for name, value in describe_machine().items() if name != "host"},
        "processes": given.processes,
        "identical": hashes[0] == hashes[1],
        "named_seconds_most": max(told.named_seconds for told in found),
        "resumed_seconds_most": max(told.resumed_seconds for told in found),
        "happened": [asdict(told) for told in found],
    }
    print(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
