"""The help of every command as a person sees it, 100 columns wide and without colour. To write it anew:

python -m tests.support.help_pages
"""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "cli" / "help"
COMMANDS = (
    "", "train", "launch", "doctor", "eval", "predict", "verify-resume", "prepare", "plan", "bench",
    "bench step", "bench input", "bench allreduce", "bench update", "bench accuracy",
)  # fmt: skip


def page(command: str) -> Path:
    return FOLDER / f"{'-'.join(['podium', *command.split()])}.txt"


def render(command: str) -> str:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    environment.pop("FORCE_COLOR", None)
    arguments = [sys.executable, "-m", "podium", *command.split(), "--help"]
    shown = subprocess.run(arguments, check=True, capture_output=True, text=True, env=environment).stdout
    return "".join(f"{line.rstrip()}\n" for line in shown.splitlines())


if __name__ == "__main__":
    for command in COMMANDS:
        page(command).write_text(render(command))
