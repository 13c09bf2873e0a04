"""The run directory's records: metrics.jsonl, one JSON object a line, and TensorBoard events."""

import json
from dataclasses import asdict
from pathlib import Path

from tensorboardX import SummaryWriter

from podium.data.manifest import write_atomic
from podium.report.events import Evaluated, Hosts, Listener, Progress, Summary


class JsonLines(Listener):
    """metrics.jsonl: every line stands alone and is written whole, so a killed run's file can still be read. A run that
    goes on after `first_step` first takes out the lines of what it will do again."""

    def __init__(self, run: Path, first_step: int = 0) -> None:
        path = run / "metrics.jsonl"
        if path.exists():
            write_atomic(path, "".join(line for line in path.open() if _stays(line, first_step)))
        self._file = path.open("a", buffering=1)

    def progress(self, event: Progress) -> None:
        self._write("train", event)

    def hosts(self, event: Hosts) -> None:
        self._write("hosts", event)

    def evaluated(self, event: Evaluated) -> None:
        self._write("evaluation", event)

    def finished(self, event: Summary) -> None:
        self._write("summary", event)

    def close(self) -> None:
        self._file.close()

    def _write(self, kind: str, event: Progress | Hosts | Evaluated | Summary) -> None:
        self._file.write(json.dumps({"event": kind, **asdict(event)}) + "\n")


def _stays(line: str, first_step: int) -> bool:
    """Steps up to `first_step`; its evaluation is made anew."""
    try:
        event = json.loads(line)
        return event["step"] < first_step + (event["event"] in ("train", "hosts"))
    except (ValueError, KeyError):  # the line that a kill has cut off
        return False


class TensorBoard(Listener):
    def __init__(self, run: Path, first_step: int = 0) -> None:
        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=first_step + 1)

    def progress(self, event: Progress) -> None:
        for name in ("loss", "top1", "learning_rate", "images_per_second", "input_bound"):
            self._writer.add_scalar(f"train/{name}", getattr(event, name), event.step)

    def hosts(self, event: Hosts) -> None:
        for name in ("step_seconds", "input_wait_seconds", "input_wait_seconds_most", "memory_bytes_most"):
            self._writer.add_scalar(f"hosts/{name}", getattr(event, name), event.step)

    def evaluated(self, event: Evaluated) -> None:
        for name in ("loss", "top1", "top5"):
            self._writer.add_scalar(f"evaluation/{name}", getattr(event, name), event.step)

    def close(self) -> None:
        self._writer.close()
