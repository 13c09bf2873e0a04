"""The run directory's records: metrics.jsonl, one JSON object a line, and TensorBoard events. Both write every metric
that the step returns, and hand each event to the kernel at once, so that a full disk is reported by the write that
meets it, in one line, and holds nobody up.
"""

import contextlib
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podium.host.files import reporting, write_atomic
from podium.report.checked_lines import checked_line, damaged_lines
from podium.report.events import Evaluated, Hosts, Listener, Progress, Summary
from podium.report.tensorboard_record import first_record, scalars_record, start_record


class _Appended:
    """A file of the run that grows by whole records."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with reporting(path):
            path.parent.mkdir(exist_ok=True)
            self._file = path.open("ab")

    def write(self, record: bytes) -> None:
        with reporting(self._path):
            try:
                self._file.write(record)
                self._file.flush()
            except OSError:
                self.close()
                raise

    def close(self) -> None:
        with contextlib.suppress(OSError):  # only what a failed write has left, and that was reported
            self._file.close()


class JsonLines(Listener):
    """metrics.jsonl: every line stands alone and is written whole, so a killed run's file can still be read. A run that
    resumes after `first_step` first removes the lines of what it will do again; with `evaluates_first` that
    includes the evaluation at that step."""

    def __init__(self, run: Path, first_step: int = 0, evaluates_first: bool = False) -> None:
        path = run / "metrics.jsonl"
        with reporting(path):
            if path.exists():
                lines = path.read_bytes().splitlines(keepends=True)
                kept = [line for line in lines if _stays(line, first_step, evaluates_first)]
                write_atomic(path, b"".join(kept).decode())
        self._file = _Appended(path)

    def progress(self, event: Progress) -> None:
        fields = asdict(event)
        metrics = fields.pop("metrics")
        self._write("train", {"step": event.step, "epoch": event.epoch, **metrics, **fields})

    def hosts(self, event: Hosts) -> None:
        self._write("hosts", asdict(event))

    def evaluated(self, event: Evaluated) -> None:
        self._write("evaluation", {k: value for k, value in asdict(event).items() if value is not None})

    def finished(self, event: Summary) -> None:
        self._write("summary", asdict(event))

    def close(self) -> None:
        self._file.close()

    def _write(self, kind: str, fields: dict[str, Any]) -> None:
        self._file.write(checked_line({"event": kind, **fields}))


def _stays(line: bytes, first_step: int, evaluates_first: bool) -> bool:
    if damaged_lines(line):  # cut off by a kill, or changed on the disk: no reason to stop a run
        return False
    event = json.loads(line)
    last = first_step - (evaluates_first and event.get("event") == "evaluation")
    return isinstance(event.get("step"), int) and event["step"] <= last


class TensorBoard(Listener):
    def __init__(self, run: Path, first_step: int = 0) -> None:
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"  # as TensorBoard looks for it
        self._file = _Appended(run / "tensorboard" / name)
        self._file.write(first_record())
        self._file.write(start_record(first_step + 1))

    def progress(self, event: Progress) -> None:
        rates = _chosen(event, "images_per_second", "input_bound")
        self._scalars("train", event.step, {**event.metrics, **rates})

    def hosts(self, event: Hosts) -> None:
        names = ("step_seconds", "input_wait_seconds", "input_wait_seconds_most", "memory_bytes_most")
        self._scalars("hosts", event.step, _chosen(event, *names))

    def evaluated(self, event: Evaluated) -> None:
        self._scalars("evaluation", event.step, event.figures())

    def close(self) -> None:
        self._file.close()

    def _scalars(self, group: str, step: int, values: Mapping[str, float]) -> None:
        self._file.write(scalars_record(step, {f"{group}/{name}": value for name, value in values.items()}))


def _chosen(event: Progress | Hosts, *names: str) -> dict[str, float]:
    return {name: getattr(event, name) for name in names}
