"""What PyTorch calls a network's tensors, and how it lays them out. ResNets have torchvision's names, which are timm's
too; the parts of any other network keep their own. Kernels are [out, in, rows, columns] there and [rows, columns, in,
out] here, matrices [out, in] there and [in, out] here.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from podium.models.resnet import SHAPES
from podium.recipe.schema import Model

Name = tuple[str, ...]
"""The parts that lead to a tensor: ("blocks", "0", "convs", "1", "kernel")."""
Tensors = dict[str, np.ndarray]
"""By PyTorch's names, in its layout."""

CLASSIFIER = "fc"
_LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}


def leaves_by_name(params: Any, stats: Any) -> dict[Name, Any]:
    """All tensors of a network: what it learns, and batch norm's statistics."""
    found = [*jax.tree_util.tree_leaves_with_path(params), *jax.tree_util.tree_leaves_with_path(stats)]
    return {name_of(path): leaf for path, leaf in found}


def name_of(path: tuple[Any, ...]) -> Name:
    names = tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
    return names[:-1] if names[-1] == "value" else names


def torch_name(model: Model, name: Name) -> str:
    """PyTorch's name of a tensor."""
    *parts, leaf = name
    return ".".join([*_torch_parts(model, tuple(parts)), _LEAVES.get(leaf, leaf)])


def _torch_parts(model: Model, parts: Name) -> list[str]:
    match parts:
        case ("classifier",):
            return [CLASSIFIER]
        case ("first",):
            return ["conv1"]
        case ("first_norm",):
            return ["bn1"]
        case ("blocks", block, *inside) if model.name in SHAPES:
            return [*_stage_and_block(model, int(block)), *_inside_block(inside)]
    return list(parts)


def _stage_and_block(model: Model, block: int) -> list[str]:
    """Ours are counted through the network, torchvision's within a stage."""
    for stage, blocks in enumerate(SHAPES[model.name].blocks):
        if block < blocks:
            return [f"layer{stage + 1}", str(block)]
        block -= blocks
    raise ValueError(f"{model.name} has no block {block}")


def _inside_block(inside: list[str]) -> list[str]:
    match inside:
        case "convs", number:
            return [f"conv{int(number) + 1}"]
        case "norms", number:
            return [f"bn{int(number) + 1}"]
        case ["shortcut"]:
            return ["downsample", "0"]
        case ["shortcut_norm"]:
            return ["downsample", "1"]
    return inside


def to_torch(tensor: Any) -> Any:
    """A tensor in PyTorch's layout."""
    return tensor.transpose({4: (3, 2, 0, 1), 2: (1, 0)}.get(tensor.ndim, range(tensor.ndim)))


def from_torch(tensor: Any) -> Any:
    """A tensor of PyTorch in ours."""
    return tensor.transpose({4: (2, 3, 1, 0), 2: (1, 0)}.get(tensor.ndim, range(tensor.ndim)))


def torch_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """`to_torch`'s, of a shape alone."""
    return tuple(shape[axis] for axis in {4: (3, 2, 0, 1), 2: (1, 0)}.get(len(shape), range(len(shape))))


def torch_tensors(model: Model, leaves: Mapping[Name, Any]) -> Tensors:
    """A network's tensors as PyTorch has them."""
    return {torch_name(model, name): np.ascontiguousarray(to_torch(np.asarray(leaf))) for name, leaf in leaves.items()}
