"""What a run has told so far: its metrics.jsonl, read again. A run that is under way or was killed has one too."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.host.files import reporting

Line = dict[str, Any]
"""The fields of one event."""


@dataclass(frozen=True)
class History:
    train: tuple[Line, ...]
    evaluations: tuple[Line, ...]
    hosts: tuple[Line, ...]
    summary: Line | None

    def accuracy_at(self, step: int, *, raw_weights: bool = False) -> float | None:
        """Top-1 accuracy of the evaluation at `step`, if there was one; of the weights that were not averaged."""
        lines = [line for line in self.evaluations if line["step"] == step]
        found = [line.get("raw_top1", line["top1"]) if raw_weights else line["top1"] for line in lines]
        return found[-1] if found else None


def read_history(run: Path) -> History:
    """The history of the run in this directory; empty if nothing was written yet."""
    path = run / "metrics.jsonl"
    events: dict[str, list[Line]] = {}
    with reporting(path, "give a run's directory", action="read"):
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                fields = json.loads(line)
                events.setdefault(fields.pop("event"), []).append(fields)
            except (ValueError, KeyError, AttributeError):  # the line that a kill has cut off
                continue
    summary = events["summary"][-1] if "summary" in events else None
    train, evaluations, hosts = (tuple(events.get(kind, ())) for kind in ("train", "evaluation", "hosts"))
    return History(train, evaluations, hosts, summary)
