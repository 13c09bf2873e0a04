"""starts.jsonl: a line for each time a run was started or resumed, with the machine that it ran on."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podium.host.files import reporting
from podium.host.machine import describe_machine
from podium.host.versions import versions
from podium.report.events import Listener, Started

_FILE = "starts.jsonl"


class Starts(Listener):
    def __init__(self, run: Path) -> None:
        self._path = run / _FILE

    def started(self, event: Started) -> None:
        told = {"time": time.time(), **asdict(event), "machine": describe_machine(), "versions": versions()}
        with reporting(self._path), self._path.open("a") as file:
            file.write(json.dumps(told) + "\n")


def read_starts(run: Path) -> list[dict[str, Any]]:
    """Every start of the run, in order; none of a run of an earlier version."""
    path, starts = run / _FILE, []
    with reporting(path, "give a run's directory", action="read"):
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                starts.append(json.loads(line))
            except ValueError:  # the line that a kill has cut off
                continue
    return starts
