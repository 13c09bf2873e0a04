"""Which layers of a network do not learn: `model.freeze` names the last of them, counted from the image. A frozen layer
keeps its weights; whether its batch norm also keeps its statistics is `model.freeze_norm`'s choice. Layers are told
apart by the names of a network's parts, so nothing here holds a network.
"""

from collections.abc import Callable
from typing import Any

from flax import nnx

from podium.errors import UserError
from podium.models.batch_norm import DistributedBatchNorm
from podium.models.pooled import POOLED
from podium.models.resnet import SHAPES
from podium.recipe.schema import Model

ALL_BUT_CLASSIFIER = "all but classifier"
_NOTHING, _STEM = "none", "stem"
Path = tuple[Any, ...]
"""The names and numbers that lead from a network to one of its parts."""


def stage_count(model: Model) -> int:
    """Stages of a shipped network; 0 for one of the caller's own, whose parts have names that we do not know."""
    if model.name in POOLED:
        return len(POOLED[model.name].widths)
    return len(SHAPES[model.name].blocks) if model.name in SHAPES else 0


def check_freeze(model: Model) -> None:
    """Whether there are such layers."""
    _last_frozen(model)


def is_frozen(model: Model) -> Callable[[Path], bool]:
    """Whether the part of the network at a path keeps its weights."""
    last = _last_frozen(model)
    return lambda path: path[0] != "classifier" and _stage(model, path) <= last


def keep_statistics(model: Model, network: nnx.Module) -> None:
    """Lets the batch norms that `model.freeze_norm` names normalise with their moving statistics, and keep them."""
    frozen = is_frozen(model)
    for path, part in nnx.iter_modules(network):
        if isinstance(part, DistributedBatchNorm | nnx.BatchNorm) and _keeps(model, frozen(path)):
            part.use_running_average = True


def keeps_any(model: Model) -> bool:
    """Whether there may be a batch norm that keeps its statistics."""
    return model.freeze_norm == "all" or (model.freeze_norm == "frozen layers" and model.freeze != _NOTHING)


def keeps_statistics(model: Model) -> Callable[[Path], bool]:
    """Whether the batch norm at a path keeps its statistics."""
    frozen = is_frozen(model)
    return lambda path: _keeps(model, frozen(path))


def _keeps(model: Model, frozen: bool) -> bool:
    return model.freeze_norm == "all" or (model.freeze_norm == "frozen layers" and frozen)


def _last_frozen(model: Model) -> float:
    """The number of the last frozen stage: 0 is the stem, −1 none."""
    stages = [f"stage {k + 1}" for k in range(stage_count(model))]
    by_name = {_NOTHING: -1.0, _STEM: 0.0, **{stage: k + 1.0 for k, stage in enumerate(stages)}}
    if model.freeze == ALL_BUT_CLASSIFIER:
        return float("inf")
    if model.freeze not in by_name:
        choices = ", ".join([*by_name, ALL_BUT_CLASSIFIER])
        raise UserError(f"model.freeze={model.freeze!r} is none of {model.name}'s layers; use one of {choices}")
    return by_name[model.freeze]


def _stage(model: Model, path: Path) -> float:
    """The stage that a part belongs to; the stem is 0. The parts of the caller's own network are behind all stages."""
    match path[0], path[1:2]:
        case (("first" | "first_norm" | "patch_bias"), _):
            return 0
        case "stages", (k,):
            return int(k) + 1
        case "blocks", (k,) if model.name in SHAPES:
            ends = [sum(SHAPES[model.name].blocks[: n + 1]) for n in range(stage_count(model))]
            return 1 + sum(int(k) >= end for end in ends)
    return float("inf")
