"""A job of many real processes, each on a network namespace of its own, to which things happen in turn: a process is
killed, another is frozen, the link of a third is cut. Each time the job must end by itself, name it and resume."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.support import namespaces
from tests.support.elastic import ENVIRONMENT, reached, starts
from tests.support.processes import RECIPE
from tests.support.slurm import until

from podium.data.dataset.manifest import write_manifest
from podium.data.dataset.shards import write_split
from podium.data.prepare import demo

KINDS = ("killed", "frozen", "cut off")
_STEPS_EACH = 3  # that the job is longer by for each of them


@dataclass(frozen=True)
class Happened:
    process: int
    kind: str
    step: int
    named: str
    """The line of the first who said so."""
    named_seconds: float
    """From what happened until a process had named it and ended."""
    resumed_seconds: float
    """And until the first step of the next start."""


class Job:
    """`podium launch` on namespaces, and what it prints."""

    def __init__(
        self,
        folder: Path,
        name: str,
        hosts: namespaces.Namespaces,
        arguments: Sequence[str],
        *,
        launch: Sequence[str] = (),
    ) -> None:
        self.run, self.log = folder / name, folder / f"{name}.log"
        command = [sys.executable, "-m", "podium", "launch", "--hosts", ",".join(hosts.names)]
        command += [
            "--shell",
            "ip netns exec",
            "--restarts",
            "1000",
            *launch,
            "--",
            "train",
            *arguments,
            "--run",
            str(self.run),
        ]
        environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=log, env=_inherited() | ENVIRONMENT | environment
            )

    def alive(self) -> bool:
        return self.process.poll() is None

    def trains(self, start: int) -> float:
        """Waits for the first step of a start; when that was."""
        until(lambda: len(starts(self.run)) > start and reached(self.run) > starts(self.run)[start][1], self.alive)
        return time.time()

    def lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def weights_hash(self) -> str:
        """After its end."""
        assert self.process.wait() == 0, self.log.read_text()
        return str(json.loads((self.run / "summary.json").read_text())["weights_hash"])

    def process_on(self, name: str) -> psutil.Process:
        """The one that trains on this host, of which only the host's network tells which rank it was given."""
        network = os.stat(f"/run/netns/{name}").st_ino
        for found in psutil.process_iter():
            with contextlib.suppress(psutil.Error, FileNotFoundError):
                if str(self.run) in found.cmdline() and os.stat(f"/proc/{found.pid}/ns/net").st_ino == network:
                    return found
        raise LookupError(name)


def _inherited() -> dict[str, str]:
    return dict(psutil.Process().environ())


def small_images(folder: Path) -> Path:
    """A prepared directory with 96 of the demo's images to train on."""
    data = folder / "data"
    data.mkdir()
    parts = {"train": range(96), "validation": range(96, 120)}
    shards = {name: write_split(data, name, demo.images(0, part), count=len(part)) for name, part in parts.items()}
    write_manifest(data, demo.CLASSES, shards, plan="96")
    return data


def in_turn(processes: int, count: int, rng: random.Random) -> list[tuple[int, str]]:
    """So many of all pairs of a process and what happens to it: every process, and every kind, before one twice."""
    shuffled = rng.sample(range(processes), processes)
    turns = [(k, KINDS[(place + turn) % 3]) for turn in range(3) for place, k in enumerate(shuffled)]
    return turns[:count]


def happen(
    folder: Path, data: Path, turns: Sequence[tuple[int, str]], *, processes: int, hashes: list[str]
) -> Iterator[Happened]:
    """Each of them as it happened; then `hashes` has those of the weights of a run left alone, and of this one."""
    recipe = folder / "chaos.toml"
    recipe.write_text(RECIPE)
    steps = 12 + _STEPS_EACH * len(turns)
    changes = (
        f"torus=1x{processes}", "reduce=xla", "max_lost_steps=2", f"epochs={steps * 16 / 96}",
        "optimizer.learning_rate=0.2", "evaluate_every_epochs=1000",
    )  # fmt: skip
    arguments = ["--recipe", str(recipe), "--data", str(data), *(part for c in changes for part in ("--set", c))]
    with namespaces.joined(processes) as hosts:
        hashes.append(Job(folder, "alone", hosts, arguments).weights_hash())
        job = Job(folder, "disturbed", hosts, arguments)
        try:
            for number, (process, kind) in enumerate(turns):
                job.trains(number)
                yield _happened(job, hosts, process, kind=kind, number=number)
            hashes.append(job.weights_hash())
        finally:
            job.process.terminate()
            job.process.wait()


def _happened(job: Job, hosts: namespaces.Namespaces, process: int, *, kind: str, number: int) -> Happened:
    step, before = reached(job.run), len(job.lines())
    name, began = hosts.names[process], time.time()
    if kind == "cut off":
        hosts.cut(name)
    else:
        job.process_on(name).send_signal(signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
    named = until(lambda: _named(job.lines()[before:], process, name), job.alive)
    named_seconds = time.time() - began
    if kind == "cut off":
        hosts.mend(name)
    resumed_seconds = job.trains(number + 1) - began
    return Happened(process, kind, step, named, round(named_seconds, 1), round(resumed_seconds, 1))


def _named(lines: Sequence[str], process: int, name: str) -> str:
    """The line of another process which says that this one is gone, or of the launcher, that its host is."""
    if dark := [line for line in lines if line.startswith(f"podium: {name} no longer answers")]:
        return dark[0]
    names = (f": process {process} (", *([": process 0, the coordinator"] if process == 0 else []))
    others = (line for line in lines if line.startswith("podium: process ") and f"process {process}: " not in line[:20])
    return next((line for line in others if any(name in line for name in names)), "")
