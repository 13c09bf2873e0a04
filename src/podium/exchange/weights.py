"""Weights from a safetensors file, and what a network takes of them: every tensor by name and shape; the classifier
is left out where it is for different classes. What does not fit is told in one line, before anything is trained.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from podium.errors import UserError
from podium.exchange.names import (
    CLASSIFIER,
    Name,
    Tensors,
    from_torch,
    name_of,
    torch_name,
    torch_shape,
)
from podium.exchange.stem import fold_stem
from podium.host.files import reporting, sha256
from podium.models.resnet import SHAPES, Shape
from podium.recipe.images import Data
from podium.recipe.schema import Model

WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"
COUNTERS = "num_batches_tracked"  # of PyTorch's batch norm, which nothing reads
_BLOCK = re.compile(r"layer(\d+)\.(\d+)\.")
_SHOWN = 2  # of what does not fit
_PICKLED = (".pth", ".pt", ".bin", ".ckpt")
_CONVERSION = (
    "from safetensors.torch import save_file; save_file(torch.load(FILE, weights_only=True), 'model.safetensors')"
)


@dataclass(frozen=True)
class Weights:
    """The tensors of a trained network, and what is known about it."""

    source: str
    sha256: str
    """The hash of the file, or of a run's checkpoint."""
    tensors: Tensors
    classes: tuple[str, ...] | None = None
    """Their names, if they are known."""
    padding: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    """Mean and deviation of the pixels it was trained with, if they are known."""


def read_weights(path: Path) -> Weights:
    """From a safetensors file, or a folder that holds model.safetensors; config.json beside it is read too."""
    file = path / WEIGHTS_FILE if path.is_dir() else path
    if file.suffix in _PICKLED:
        raise UserError(
            f'{file} is pickled, and reading it could run code; convert it: python -c "import torch; {_CONVERSION}"'
        )
    if not file.is_file():
        raise UserError(f"{path} holds no weights; give a .safetensors file, a folder with {WEIGHTS_FILE}, or a run")
    with reporting(file, "give a readable file", action="read"):
        tensors, digest = _tensors(file), sha256(file)
    return Weights(str(file.absolute()), digest, tensors, **_config(file.with_name(CONFIG_FILE)))


def _tensors(file: Path) -> Tensors:
    try:
        found = load_file(file)
    except (SafetensorError, TypeError, KeyError) as error:
        raise UserError(f"{file} is not a whole safetensors file ({error}); download or write it again") from None
    return {name: tensor.astype(np.float32) for name, tensor in found.items() if not name.endswith(COUNTERS)}


def _config(file: Path) -> dict[str, Any]:
    """What a config.json of timm's kind says."""
    try:
        config = json.loads(file.read_text()) if file.exists() else {}
        cfg = config.get("pretrained_cfg", {})
        known = {"classes": cfg.get("label_names"), "mean": cfg.get("mean"), "std": cfg.get("std")}
        found = {key: tuple(value) for key, value in known.items() if value}
        return {**found, "padding": config.get("podium", {}).get("padding")}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{file} cannot be read ({error}); mend or remove it: weights need no config.json") from None


@dataclass(frozen=True)
class Chosen:
    """What a network takes from weights: tensors by PyTorch's names, which fit it."""

    model: Model
    tensors: Tensors
    classifier_kept: bool

    def place(self, tree: Any) -> Any:
        """A tree of the network's tensors (parameters, or statistics) with those that were chosen, in host memory."""

        def placed(path: tuple[Any, ...], leaf: Any) -> np.ndarray:
            tensor = self.tensors.get(torch_name(self.model, name_of(path)))
            return np.asarray(leaf) if tensor is None else np.ascontiguousarray(from_torch(tensor))

        return jax.tree_util.tree_map_with_path(placed, tree)


def choose_tensors(weights: Weights, model: Model, shapes: Mapping[Name, Any], *, classes: tuple[str, ...]) -> Chosen:
    """Those of `weights` that a network of these shapes and classes starts with; all of it but perhaps the
    classifier, or a UserError."""
    if weights.padding not in (None, model.padding):
        raise UserError(
            f"{weights.source} was trained with model.padding={weights.padding!r}, and its results differ with "
            f"{model.padding!r}; use --set model.padding={weights.padding}"
        )
    tensors, wanted = dict(weights.tensors), {torch_name(model, name): leaf.shape for name, leaf in shapes.items()}
    if "conv1.weight" in tensors:
        tensors["conv1.weight"] = fold_stem(tensors["conv1.weight"], model.stem)
    kept = _same_classes(weights, tensors, classes)
    if not kept:
        tensors, wanted = ({k: v for k, v in named.items() if not _of_classifier(k)} for named in (tensors, wanted))
    _check_fit(weights.source, model, tensors, wanted={key: torch_shape(shape) for key, shape in wanted.items()})
    return Chosen(model, tensors, kept)


def check_pixels(weights: Weights, data: Data, say: Callable[[str], None]) -> None:
    """Says so where pixels are normalised in a different way from how the weights saw them."""
    for key, theirs, ours in (("mean", weights.mean, data.mean), ("std", weights.std, data.std)):
        if theirs is not None and not np.allclose(theirs, ours, atol=1e-3):
            given = [round(value, 4) for value in theirs]
            say(f"the weights were trained with data.{key}={given}, the recipe has {[*ours]}; --set data.{key}={given}")


def _same_classes(weights: Weights, tensors: Tensors, classes: tuple[str, ...]) -> bool:
    """By their names where they are known, else by their number."""
    if weights.classes is not None:
        return weights.classes == classes
    head = tensors.get(f"{CLASSIFIER}.weight")
    return head is not None and head.shape[0] == len(classes)


def _of_classifier(key: str) -> bool:
    return key.startswith((f"{CLASSIFIER}.", "classifier."))


def _check_fit(source: str, model: Model, tensors: Tensors, *, wanted: Mapping[str, tuple[int, ...]]) -> None:
    problems = [f"{key} is missing" for key in wanted if key not in tensors]
    problems += [
        f"{key} is {list(tensors[key].shape)} and should be {list(shape)}"
        for key, shape in wanted.items()
        if key in tensors and tensors[key].shape != shape
    ]
    problems += [f"{key} is not known" for key in tensors if key not in wanted]
    if problems:
        shown, more = problems[:_SHOWN], len(problems) - _SHOWN
        rest = f", and {more} more" if more > 0 else ""
        raise UserError(
            f"{source} does not fit model.name={model.name}: {', '.join(shown)}{rest}; {_advice(model, tensors)}"
        )


def _advice(model: Model, tensors: Tensors) -> str:
    """Which network the tensors are of, if it is one of ours."""
    first = tensors.get("conv1.weight", np.empty((0, 0, 0, 0)))
    stem = {7: "conv7", 3: "conv3"}.get(first.shape[-1])
    places = [_BLOCK.match(key) for key in tensors]
    blocks = sorted({(int(place[1]), int(place[2])) for place in places if place})
    counts = tuple(sum(stage == k for stage, _ in blocks) for k in sorted({stage for stage, _ in blocks}))
    theirs = Shape(counts, first.shape[0], "layer1.0.conv3.weight" in tensors)
    for name, shape in SHAPES.items():
        settings = [f"--set model.{k}={v}" for k, v in (("name", name), ("stem", stem)) if v != getattr(model, k)]
        if shape == theirs and stem and settings:
            return f"it is a {name}: use {' '.join(settings)}"
    return "give weights of the same network"
