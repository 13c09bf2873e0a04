"""A small run to do harm to: real `podium train` processes, which this file only starts and watches."""

import collections
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from podium.data.dataset.manifest import write_manifest
from podium.data.dataset.shards import write_split
from podium.data.prepare import demo
from podium.train.checkpoint_files import complete_steps

MAX_LOST_STEPS = 16
_IMAGES = {"train": range(160), "validation": range(160, 200)}
_BATCH = 32
_LOOK_SECONDS = 0.002
_LINES_KEPT = 20


@dataclass(frozen=True)
class Moment:
    """After so many steps, or in the write of that checkpoint, of one start."""

    after_steps: float = math.inf
    in_write: float = math.inf
    delay_seconds: float = 0.0


class Training:
    """One start of the run, and what it printed last."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | environment
        )
        self._said: collections.deque[bytes] = collections.deque(maxlen=_LINES_KEPT)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            self._said.extend(self.process.stdout)

    def ended(self) -> int:
        """Waits for its end; the exit code."""
        code = self.process.wait()
        self._listener.join()
        return code

    def last_line(self) -> str:
        return self._said[-1].decode(errors="replace").strip() if self._said else "no message"


@dataclass
class SmallRun:
    """Runs of the same recipe in one folder, each with a name, and how they bore what was done to them."""

    folder: Path
    steps: int
    rng: random.Random
    reached: int = 0
    lost: list[int] = field(default_factory=list)
    """Steps that each SIGKILL has cost."""
    inside: list[bool] = field(default_factory=list)
    """Whether it fell inside a write."""
    restart_seconds: list[float] = field(default_factory=list)

    def make_data(self) -> None:
        data = self.folder / "data"
        data.mkdir()
        shards = {
            name: write_split(data, name, demo.images(0, part), count=len(part)) for name, part in _IMAGES.items()
        }
        write_manifest(data, demo.CLASSES, shards, plan="verify-resume")

    def path(self, name: str) -> Path:
        return self.folder / name

    def start(self, name: str, **environment: str) -> Training:
        changed = {
            "epochs": self.steps * _BATCH / len(_IMAGES["train"]),
            "batch_global": _BATCH,
            "torus": "1x2",
            "max_lost_steps": MAX_LOST_STEPS,
            "log_every_steps": 1,
            "evaluate_every_epochs": 10,
            "data.image_size": 32,
            "model.norm_span": _BATCH,
        }
        command = [sys.executable, "-m", "podium", "train", "--json", "--data", f"{self.folder}/data"]
        command += ["--run", str(self.path(name)), *(f"--set={key}={value}" for key, value in changed.items())]
        return Training(command, environment)

    def to_its_end(self, name: str) -> str:
        """Starts or continues a run, lets it end, and returns the hash of its weights."""
        if not (self.path(name) / "summary.json").exists():
            self.check(self.start(name))
        return str(json.loads((self.path(name) / "summary.json").read_text())["weights_hash"])

    def at_a_moment(self, name: str, training: Training, act: Callable[[], object]) -> bool:
        """Acts upon a run at a random moment. False if it ended before."""
        run, chosen, began = self.path(name), self._choose_moment(), time.monotonic()
        last, writing = last_step(run), _writing(run)
        new_steps = new_writes = 0
        while training.process.poll() is None:
            if (step := last_step(run)) > last:
                if not new_steps:
                    self.restart_seconds.append(time.monotonic() - began)
                new_steps += step - last
            if (written := _writing(run)) != writing:
                new_writes += bool(written)
            last, writing = step, written
            if new_steps >= chosen.after_steps or new_writes >= chosen.in_write:
                time.sleep(chosen.delay_seconds)
                act()
                return True
            time.sleep(_LOOK_SECONDS)
        self.check(training)
        return False

    def _choose_moment(self) -> Moment:
        if self.rng.random() < 0.5:
            return Moment(after_steps=self.rng.randint(1, 2 * MAX_LOST_STEPS))
        # Not always the first write, or the run would never get on.
        return Moment(in_write=self.rng.randint(1, 3), delay_seconds=self.rng.uniform(0, 0.1))

    def killed(self, name: str, training: Training) -> bool:
        """Kills a run, and notes what that has cost. False if it ended before."""
        training.process.kill()
        if training.ended() != -signal.SIGKILL:
            self.check(training)
            return False
        self.reached = last_step(self.path(name))
        self.lost.append(self.reached - max(complete_steps(self.path(name) / "checkpoints"), default=0))
        self.inside.append(bool(_writing(self.path(name))))
        return True

    def check(self, training: Training, *expected: int) -> None:
        """Waits for the end of a start, which must be a success, or one of the `expected` codes."""
        if (code := training.ended()) not in (0, *expected):
            raise RuntimeError(f"podium train ended with {code}: {training.last_line()}")


def last_step(run: Path) -> int:
    """The newest step in the records, which are written a line at a time."""
    try:
        with (run / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 2000))
            lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b'{"event": "train"')]
        return int(json.loads(lines[-1])["step"])
    except (FileNotFoundError, IndexError):
        return 0


def _writing(run: Path) -> str:
    """The checkpoint that is being written."""
    try:
        return next((entry.name for entry in (run / "checkpoints").iterdir() if ".orbax" in entry.name), "")
    except FileNotFoundError:
        return ""
