"""Podium trains image classifiers at supercomputer scale. These are its public names; they load when first used, so
that importing the package costs nothing and starts no device.

    from podium import load_recipe, train_recipe
    train_recipe(load_recipe("demo"), data="prepared/", run="runs/mine")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.data.dataset.shards import ImageSet
    from podium.data.prepare import prepare
    from podium.errors import UserError
    from podium.models import DistributedBatchNorm, ResNet, build_norm
    from podium.recipe.reading import load_recipe as load_recipe
    from podium.recipe.schema import Recipe
    from podium.recipe.torus import Torus
    from podium.step.programs import build_step
    from podium.train.run import train_recipe
    from podium.train.trained_model import open_run

__all__ = [
    "DistributedBatchNorm",
    "ImageSet",
    "Recipe",
    "ResNet",
    "Torus",
    "UserError",
    "build_norm",
    "build_step",
    "load_recipe",
    "open_run",
    "prepare",
    "train_recipe",
]

_HOME = {
    "DistributedBatchNorm": "podium.models",
    "ImageSet": "podium.data.dataset.shards",
    "Recipe": "podium.recipe.schema",
    "ResNet": "podium.models",
    "Torus": "podium.recipe.torus",
    "UserError": "podium.errors",
    "build_norm": "podium.models",
    "build_step": "podium.step.programs",
    "load_recipe": "podium.recipe.reading",
    "open_run": "podium.train.trained_model",
    "prepare": "podium.data.prepare",
    "train_recipe": "podium.train.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"podium has no public name {name!r}")
    return getattr(import_module(_HOME[name]), name)
