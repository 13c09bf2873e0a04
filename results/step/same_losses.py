"""The losses of native convolutions beside XLA's: sixteen simulated chips, in one process and in four, the same recipe
and images.

    python results/step/same_losses.py WORK_DIRECTORY > results/step/DATE-same-losses.json
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from podium.bench import timing

CHANGES = (
    "torus=4x4", "log_every_steps=1", "epochs=1", "schedule.warmup_epochs=0", "optimizer.learning_rate=0.05",
    "evaluate_every_epochs=1",
)  # fmt: skip


def losses(run: Path, *, processes: int, convolutions: str) -> list[float]:
    train = ["train", "--run", str(run)]
    for change in CHANGES:
        train += ["--set", change]
    launch = [] if processes == 1 else ["launch", "-n", str(processes), "--"]
    command = [sys.executable, "-m", "podium", *launch, *train]
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, "PODIUM_CONVOLVE": convolutions})
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["event"] == "train"]


def main() -> None:
    work = Path(sys.argv[1])
    found = {
        f"{processes} processes, {name}": losses(work / f"{processes}-{name}", processes=processes, convolutions=name)
        for processes in (1, 4)
        for name in ("native", "xla")
    }
    xla = found["1 processes, xla"]
    worst = {name: max(abs(a - b) / b for a, b in zip(own, xla, strict=True)) for name, own in found.items()}
    told = {"command": "python results/step/same_losses.py WORK", "largest_relative_difference": worst, "losses": found}
    print(json.dumps(told | {"machine": timing.machine("jax")}, indent=1))


if __name__ == "__main__":
    main()
