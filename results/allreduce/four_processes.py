"""The first 39 steps of recipe `cifar10-sgd` on four processes, by every reduction and weight update: are the losses
the same? Prints JSON.

    python results/allreduce/four_processes.py PREPARED_CIFAR10 FOLDER_FOR_RUNS
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from podium.bench import timing
from podium.recipe.reading import load_recipe

STEPS_TOLD = (1, 5, 10, 20, 39)
EPOCHS = 0.1
RECIPE = load_recipe("cifar10-sgd")
# A tenth of an epoch lies within the warm-up: a run of that length that warms up to the rate which the recipe has by
# then takes the recipe's own first steps.
WARMUP_EPOCHS = 0.999 * EPOCHS  # a warm-up must end before the run
RATE = RECIPE.optimizer.learning_rate * WARMUP_EPOCHS / RECIPE.schedule.warmup_epochs


def losses(data: str, run: Path, reduce: str, weight_update: str) -> list[float]:
    sets = ["torus=2x2", f"reduce={reduce}", f"weight_update={weight_update}", "log_every_steps=1"]
    sets += [f"epochs={EPOCHS}", f"schedule.warmup_epochs={WARMUP_EPOCHS}", f"optimizer.learning_rate={RATE}"]
    command = [sys.executable, "-m", "podium", "launch", "-n", "4", "--", "train", "--recipe", "cifar10-sgd"]
    command += ["--data", data, "--run", str(run), *(part for text in sets for part in ("--set", text))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [event["loss"] for event in events if event["event"] == "train"]


if __name__ == "__main__":
    data, folder = sys.argv[1], Path(sys.argv[2])
    curves = {
        f"{reduce}, {update}": losses(data, folder / f"{reduce}-{update}", reduce, update)
        for reduce in ("xla", "ring", "torus")
        for update in ("replicated", "sharded")
    }
    first = np.array(curves["xla, replicated"])
    apart = {name: np.abs(np.array(curve) / first - 1) for name, curve in curves.items()}
    told = {name: {step: float(a[:step].max()) for step in STEPS_TOLD} for name, a in apart.items()}
    machine = timing.machine("jax", "jaxlib", "flax")
    print(json.dumps({"machine": machine, "largest_relative_difference_up_to_step": told, "losses": curves}))
