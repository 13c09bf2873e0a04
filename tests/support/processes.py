"""Starts real processes of the podium command that find each other over loopback, and collects what they say."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECIPE = """
epochs = 2
batch_global = 16
torus = "1x2"
log_every_steps = 1
evaluate_every_epochs = 2

[data]
image_size = 16
eval_share = 1.0

[model]
name = "resnet8"
stem = "conv3"
norm_span = 16

[optimizer]
name = "lars"
learning_rate = 2.0
trust = 0.02

[schedule]
decay = "cosine"
warmup_epochs = 0.5
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def podium(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "podium", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | environment,
    )


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate()
    return Ended(process.returncode, out, err)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def together(
    command: str, *of_each: list[str], of_last: dict[str, str] | None = None, folders: Sequence[Path] = ()
) -> list[Ended]:
    """One process of the command per list of arguments, each in its folder where `folders` are given; the last may have
    an environment of its own."""
    port, last = free_port(), len(of_each) - 1
    running = [
        podium(
            command, "--json", "--coordinator", f"127.0.0.1:{port}",
            "--processes", str(len(of_each)), "--process", str(k), *arguments,
            folder=folders[k] if folders else None, **(of_last or {} if k == last else {}),
        )
        for k, arguments in enumerate(of_each)
    ]  # fmt: skip
    return [ended(process) for process in running]


def two_of(program: str, *arguments: str) -> list[Ended]:
    """Two processes of a Python program, which gets the coordinator's address, its own number and the arguments."""
    address = f"127.0.0.1:{free_port()}"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program, address, str(process), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    return [ended(process) for process in both]


def train_together(*of_each: list[str], folders: Sequence[Path] = ()) -> list[Ended]:
    return together("train", *of_each, folders=folders)


def metrics(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]
