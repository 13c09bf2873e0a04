"""Podium trains image classifiers at supercomputer scale. These are its public names; they load when first used, so
that importing the package costs nothing and starts no device.

    from podium import load_recipe, train_recipe
    train_recipe(load_recipe("demo"), data="prepared/", run="runs/mine")
"""

import ast
import functools
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers; read as text, it is also the table of where each public name lives
    from podium.data.dataset.shards import ImageSet as ImageSet
    from podium.data.input.device_batches import Loader as Loader
    from podium.data.input.host_batches import NumpyLoader as NumpyLoader
    from podium.data.prepare import prepare as prepare
    from podium.errors import UserError as UserError
    from podium.mesh import recipe_mesh as recipe_mesh
    from podium.models import DistributedBatchNorm as DistributedBatchNorm
    from podium.models import ResNet as ResNet
    from podium.models import build_norm as build_norm
    from podium.optim.transformation import lars as lars
    from podium.recipe.reading import load_recipe as load_recipe
    from podium.recipe.schema import Recipe as Recipe
    from podium.recipe.torus import Torus as Torus
    from podium.step.programs import build_step as build_step
    from podium.train.run import Limits as Limits
    from podium.train.run import train_recipe as train_recipe
    from podium.train.setup import Own as Own
    from podium.train.trained_model import open_run as open_run

    __version__: str


@functools.cache
def _homes() -> dict[str, str]:
    """Where each public name lives."""
    assert __spec__ is not None
    assert __spec__.loader is not None
    source = __spec__.loader.get_source(__name__)  # type: ignore[attr-defined]
    checked = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    imports = (node for node in checked.body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version(__name__)
    if name == "__all__":
        return sorted(_homes())
    if name.startswith("_") or name not in _homes():
        raise AttributeError(f"podium has no public name {name!r}")
    return getattr(importlib.import_module(_homes()[name]), name)


def __dir__() -> list[str]:
    return [*sorted(_homes()), "__version__"]
