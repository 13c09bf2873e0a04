"""starts.jsonl: a line for each time a run was started or resumed, with the machine that it ran on."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from podium.host.files import reporting
from podium.host.machine import describe_machine
from podium.host.versions import versions
from podium.report.checked_lines import checked_line, damaged_lines
from podium.report.events import Listener, Started

_FILE = "starts.jsonl"


class Starts(Listener):
    def __init__(self, run: Path) -> None:
        self._path = run / _FILE

    def started(self, event: Started) -> None:
        told = {"time": time.time(), **asdict(event), "machine": describe_machine(), "versions": versions()}
        with reporting(self._path), self._path.open("a+b") as file:
            if file.tell() and not _ends(file):
                file.write(b"\n")
            file.write(checked_line(told))


def read_starts(run: Path) -> list[dict[str, Any]]:
    """Every start of the run that can be read, in order: not the line that a kill has cut off, nor one in which a byte
    has changed."""
    path = run / _FILE
    with reporting(path, "give a run's directory", action="read"):
        content = path.read_bytes() if path.exists() else b""
    damaged = set(damaged_lines(content))
    lines = content.split(b"\n")
    return [json.loads(line) for number, line in enumerate(lines, start=1) if line and number not in damaged]


def _ends(file: IO[bytes]) -> bool:
    """Whether the last line is whole: a kill may have cut it off."""
    file.seek(-1, 2)
    return file.read(1) == b"\n"
