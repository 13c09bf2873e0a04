"""`podium bench all`: every benchmark in a short form, each in a process of its own, and one file with what matters of
them: ratios, of which more than 1 means that Podium's way is the faster one. A benchmark whose peers are not installed
is left out, with the reason.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from podium.bench import timing
from podium.errors import UserError
from podium.host.files import reporting, write_atomic

Ratio = dict[str, float]
PEERS = {"tfdata": "tf.data", "tfdata_same": "tf.data, same quality", "dali": "DALI"}
NETWORKS = {"cifar": "resnet7", "resnet50": "ResNet-50"}


def step_ratios(result: Any) -> dict[str, Ratio]:
    """The step's ratios to PyTorch, eager and compiled. Early results know only the first."""
    found = {}
    for case, label in NETWORKS.items():
        if rates := result["cases"].get(case):
            found[f"{label} / PyTorch eager"] = rates.get("ratio_to_pytorch", rates["ratio"])
            if compiled := rates.get("ratio_to_torch_compile"):
                found[f"{label} / torch.compile"] = compiled
    return found


def input_ratios(result: Any) -> dict[str, Ratio]:
    """The ratios of JPEG bytes on the most threads that were measured, to each peer that matters and is there."""
    ratios = result["ratios"][max(result["ratios"], key=int)]
    return {f"JPEG bytes / {label}": ratios[peer]["podium"] for peer, label in PEERS.items() if peer in ratios}


def update_ratios(result: Any) -> dict[str, Ratio]:
    ratios = result["sharded_to_replicated"]
    return {f"sharded / replicated, {result['torus']}, {name.upper()}": ratio for name, ratio in ratios.items()}


def allreduce_ratios(result: Any) -> dict[str, Ratio]:
    """The ratios at the largest sum: seconds of XLA's and of the ring to seconds of the torus."""
    rows = result if isinstance(result, list) else result["results"]
    largest = max(rows, key=lambda row: row["bytes"])
    ours, (least, most) = largest["seconds"]["torus"], largest["spread_seconds"]["torus"]
    return {
        f"torus sum / {label}": {
            "median": largest["seconds"][name] / ours,
            "least": largest["spread_seconds"][name][0] / most,
            "most": largest["spread_seconds"][name][1] / least,
        }
        for name, label in (("xla", "XLA's"), ("ring", "ring"))
    }


def pod_ratios(result: Any) -> dict[str, Ratio]:
    """Cycles of Flax's step with LARS to cycles of Podium's. The compiler gives the same in every run. Early results
    leave out what it does not price."""
    cycles = {
        (row["program"], row["images_per_core"]): row.get("whole_cycles", row["cycles"]) for row in result["rows"]
    }
    found = {}
    for images in sorted({images for _, images in cycles}):
        ratio = cycles["flax, optax.lars", images] / cycles["Podium", images]
        found[f"{result['topology']}, {images} a core / Flax"] = {"median": ratio, "least": ratio, "most": ratio}
    return found


@dataclass(frozen=True)
class Part:
    """What is typed after `podium`, and what is kept of its result."""

    words: str
    ratios: Callable[[Any], dict[str, Ratio]] = lambda _: {}
    figures: Sequence[str] = ()


PARTS = {
    "step": Part("bench step --cases cifar --rounds 5", step_ratios),
    "input": Part("bench input --threads 2 --rounds 5", input_ratios),
    "update": Part("bench update --torus 2x2 --rounds 5", update_ratios),
    "allreduce": Part("bench allreduce --torus 2x2 --sizes 4194304", allreduce_ratios),
    "pod": Part("bench pod --images 8", pod_ratios),
    "accuracy": Part("train --set epochs=2 --run RUN", figures=("accuracy", "train_seconds", "images_per_second")),
    "resume": Part("verify-resume --kills 2", figures=("identical", "lost_steps_max", "restart_seconds_max")),
}


def run(names: Sequence[str], folder: Path, say: Callable[[str], None]) -> Path:
    """Runs the parts of these names, all without any, and writes FOLDER/DATE-MACHINE.json. What was measured there at
    the same commit stays."""
    for name in names:
        if name not in PARTS:
            raise UserError(f"there is no benchmark {name!r}; choose from {', '.join(PARTS)}")
    machine = timing.machine("podium", "jax", "jaxlib", "flax", "torch", "tensorflow-cpu", "libtpu")
    file = folder / f"{datetime.now(UTC):%Y-%m-%d}-{_slug(machine)}.json"
    parts, left_out = _before(file, machine)
    with reporting(folder, "give --results DIR where files can be written", action="written"):
        folder.mkdir(parents=True, exist_ok=True)
    for name in names or PARTS:
        say(f"{name}: podium {PARTS[name].words}")
        try:
            parts[name] = _measured(PARTS[name])
            left_out.pop(name, None)
        except UserError as error:
            left_out[name] = str(error)
            say(f"{name} is left out: {error}")
        order = [known for known in PARTS if known in parts]
        result = {"command": "podium bench all", "parts": {known: parts[known] for known in order}}
        write_atomic(file, json.dumps(result | {"left_out": left_out, "machine": machine}, indent=1) + "\n")
    return file


def _before(file: Path, machine: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    if not file.is_file():
        return {}, {}
    kept = json.loads(file.read_text())
    return (kept["parts"], kept["left_out"]) if kept["machine"] == machine else ({}, {})


def _measured(part: Part) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as run_folder:
        words = [f"{run_folder}/run" if word == "RUN" else word for word in part.words.split()]
        began, load = time.monotonic(), os.getloadavg()[0]
        command = [sys.executable, "-m", "podium", *words, "--json"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if ended.returncode:
        lines = ended.stderr.strip().splitlines()
        raise UserError(lines[-1].removeprefix("podium: ") if lines else f"it ended with code {ended.returncode}")
    result = json.loads(ended.stdout.splitlines()[-1])
    return {
        "command": f"podium {part.words} --json",
        "seconds": round(time.monotonic() - began, 1),
        "load_before": round(load, 1),
        **({"ratios": part.ratios(result)} if part.ratios(result) else {}),
        **{name: result[name] for name in part.figures},
    }


def _slug(machine: dict[str, Any]) -> str:
    """'amd-epyc-2-cores', for a file's name."""
    name = re.sub(r"\(\w+\)|processor|cpu", "", machine["processor"].lower())
    return re.sub(r"[^a-z0-9]+", "-", f"{name} {machine['cores']} cores").strip("-")
