"""What a run's first step starts with: random numbers, or the weights of a file or of another run. The run directory
remembers where they came from, so that a run which is stopped before its first checkpoint starts with the same again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from podium.errors import UserError
from podium.exchange.names import leaves_by_name, torch_tensors
from podium.exchange.weights import Chosen, Weights, check_pixels, choose_tensors, read_weights
from podium.recipe.schema import Recipe
from podium.step.programs import Step
from podium.step.state import State
from podium.train import run_directory
from podium.train.checkpoint import Checkpoints, on_devices
from podium.train.checkpoint_files import complete_steps


@dataclass(frozen=True)
class Start:
    tensors: Chosen
    origin: dict[str, str]
    """As run.json has it."""


def find_start(
    source: str | Path | None,
    run: Path,
    *,
    recipe: Recipe,
    shapes: tuple[Any, Any],
    classes: tuple[str, ...],
    say: Callable[[str], None],
) -> Start | None:
    """The tensors of `source` that fit the network, or of the source that `run` was started with if it has no
    checkpoint yet; None for random numbers."""
    remembered = run_directory.read(run).weights if (run / "run.json").exists() else None
    if source is None and (remembered is None or complete_steps(run / "checkpoints")):
        return None
    weights = open_weights(remembered["source"] if source is None and remembered else str(source))
    if source is None and remembered and weights.sha256 != remembered["sha256"]:
        raise UserError(f"{weights.source} has changed since {run} was started from it; choose another --run")
    chosen = choose_tensors(weights, recipe.model, leaves_by_name(*shapes), classes=classes)
    if not complete_steps(run / "checkpoints"):
        classifier = "its classifier too" if chosen.classifier_kept else f"a new classifier for {len(classes)} classes"
        say(f"starts from {len(chosen.tensors)} tensors of {weights.source}, {classifier}")
        check_pixels(weights, recipe.data, say)
    return Start(chosen, {"source": weights.source, "sha256": weights.sha256})


def open_weights(source: str | Path) -> Weights:
    """The weights of a file, of a folder that holds one, or of a run's newest checkpoint (its average, if any)."""
    path = Path(source)
    if not (path / "run.json").exists():
        return read_weights(path)
    info = run_directory.read(path)
    with Checkpoints(path) as checkpoints:
        newest = checkpoints.newest_good()
        if newest is None:
            raise UserError(f"{path} has no good checkpoint to take weights from; train it first")
        leaves = {
            name[1:-1] if name[-1] == "value" else name[1:]: leaf
            for name, leaf in checkpoints.leaves(newest, answering=True).items()
            if name[0] in ("params", "stats")
        }
        digest = checkpoints.fingerprint(newest)
    model, data = info.recipe.model, info.recipe.data
    return Weights(
        source=str(path.absolute()),
        sha256=digest,
        tensors=torch_tensors(model, leaves),
        classes=info.classes,
        padding=model.padding,
        mean=data.mean,
        std=data.std,
    )


def first_state(step: Step, tensors: Chosen | None) -> State:
    """The state before the first step."""
    if tensors is None:
        return step.init()
    start = step.portable(step.init())
    placed = [
        jax.tree.map(on_devices, tensors.place(jax.device_get(tree)), tree) for tree in (start.params, start.stats)
    ]
    return step.resumed(replace(start, params=placed[0], stats=placed[1], weight_norms=None, averaged=None))
