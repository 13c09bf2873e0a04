"""Proof that resume is exact, on this machine: a small run is killed with SIGKILL at random moments, also inside the
write of a checkpoint, and started again until it ends; its weights must then be those of a run that was never stopped.
The runs are real `podium train` processes; this file only starts, watches and kills them.
"""

import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from podium.data.dataset.manifest import write_manifest
from podium.data.dataset.shards import write_split
from podium.data.prepare import demo
from podium.train.checkpoint_files import complete_steps

_IMAGES = {"train": range(160), "validation": range(160, 200)}
_BATCH = 32
_MAX_LOST_STEPS = 16
_STEPS_PER_KILL = 12  # what a run is longer by for each kill that it must live through
_LOOK_SECONDS = 0.002


@dataclass(frozen=True)
class Verified:
    kills: int
    identical: bool
    lost_steps_max: int
    max_lost_steps: int
    """What the recipe allows to be lost."""
    kills_inside_a_write: int
    rounds: int
    """Runs from their beginning to their end: another is begun while kills are left."""
    restart_seconds_max: float
    """From the start of a process to its first step."""
    weights_hash: str


def verify_resume(kills: int = 25, seed: int = 0, say: Callable[[str], None] = lambda _: None) -> Verified:
    with tempfile.TemporaryDirectory(prefix="podium-verify-") as folder:
        run = _Run(Path(folder), steps=_STEPS_PER_KILL * max(5, kills), rng=random.Random(seed))
        run.make_data()
        say("a run that is not stopped")
        expected = run.to_its_end("whole")
        rounds, hashes = 0, set()
        while len(run.lost) < kills:
            rounds += 1
            name = f"killed-{rounds}"
            while len(run.lost) < kills and run.killed(name):
                where = "inside a write" if run.inside[-1] else "between writes"
                say(f"kill {len(run.lost)}: after step {run.reached}, {where}; {run.lost[-1]} steps lost")
            hashes.add(run.to_its_end(name))
        return Verified(
            kills=len(run.lost),
            identical=hashes == {expected},
            lost_steps_max=max(run.lost),
            max_lost_steps=_MAX_LOST_STEPS,
            kills_inside_a_write=sum(run.inside),
            rounds=rounds,
            restart_seconds_max=round(max(run.restart_seconds), 1),
            weights_hash=expected,
        )


@dataclass(frozen=True)
class _Moment:
    after_steps: float = math.inf
    in_write: float = math.inf
    delay_seconds: float = 0.0


@dataclass
class _Run:
    folder: Path
    steps: int
    rng: random.Random
    reached: int = 0
    lost: list[int] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)
    restart_seconds: list[float] = field(default_factory=list)

    def make_data(self) -> None:
        data = self.folder / "data"
        data.mkdir()
        shards = {
            name: write_split(data, name, demo.images(0, part), count=len(part)) for name, part in _IMAGES.items()
        }
        write_manifest(data, demo.CLASSES, shards, plan="verify-resume")

    def to_its_end(self, name: str) -> str:
        """Starts or continues a run, lets it end, and returns the hash of its weights."""
        if not (self.folder / name / "summary.json").exists():
            process = self._start(name)
            process.wait()
            self._check(process)
        return str(json.loads((self.folder / name / "summary.json").read_text())["weights_hash"])

    def killed(self, name: str) -> bool:
        """Starts or continues a run and kills it at a random moment. False if it ended before."""
        run, chosen = self.folder / name, self._choose_moment()
        began, process = time.monotonic(), self._start(name)
        last, writing = self._last_step(run), _writing(run)
        new_steps = new_writes = 0
        while process.poll() is None:
            if (step := self._last_step(run)) > last:
                if not new_steps:
                    self.restart_seconds.append(time.monotonic() - began)
                new_steps += step - last
            if (written := _writing(run)) != writing:
                new_writes += bool(written)
            last, writing = step, written
            if new_steps >= chosen.after_steps or new_writes >= chosen.in_write:
                time.sleep(chosen.delay_seconds)
                process.kill()
                break
            time.sleep(_LOOK_SECONDS)
        process.wait()
        if process.returncode != -signal.SIGKILL:
            self._check(process)
            return False
        self.reached = self._last_step(run)
        self.lost.append(self.reached - max(complete_steps(run / "checkpoints"), default=0))
        self.inside.append(bool(_writing(run)))
        return True

    def _choose_moment(self) -> "_Moment":
        if self.rng.random() < 0.5:
            return _Moment(after_steps=self.rng.randint(1, 2 * _MAX_LOST_STEPS))
        # Not always the first write, or the run would never get on.
        return _Moment(in_write=self.rng.randint(1, 3), delay_seconds=self.rng.uniform(0, 0.1))

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        changed = {
            "epochs": self.steps * _BATCH / len(_IMAGES["train"]),
            "batch_global": _BATCH,
            "torus": "1x2",
            "max_lost_steps": _MAX_LOST_STEPS,
            "log_every_steps": 1,
            "evaluate_every_epochs": 10,
            "data.image_size": 32,
            "model.norm_span": _BATCH,
        }
        command = [sys.executable, "-m", "podium", "train", "--json", "--data", f"{self.folder}/data"]
        command += ["--run", f"{self.folder}/{name}", *(f"--set={key}={value}" for key, value in changed.items())]
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _check(self, process: subprocess.Popen[bytes]) -> None:
        if process.returncode:
            last = (self.folder / "log").read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise RuntimeError(f"podium train ended with {process.returncode}: {last[0]}")

    def _last_step(self, run: Path) -> int:
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
