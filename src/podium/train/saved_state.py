"""What a state is called on disk: its parts and their leaves by name, and what earlier versions called them."""

from dataclasses import fields
from typing import Any

import jax

from podium.step.state import State

Name = tuple[str, ...]


def parts_by_name(state: State) -> dict[str, Any]:
    """What is saved: the parts of a state that there are."""
    return {part.name: tree for part in fields(state) if (tree := getattr(state, part.name)) is not None}


def leaves_on_disk(saved: dict[str, Any]) -> dict[Name, Any]:
    """Leaves by today's names. Podium 0.1.0 called the only slot of its optimizers momenta."""
    leaves = leaves_by_name(saved)
    return {("slots", "momentum", *name[1:]) if name[0] == "momenta" else name: leaf for name, leaf in leaves.items()}


def answering_leaves(saved: dict[Name, Any]) -> dict[Name, Any]:
    """The leaves with each average in the place of what it is the average of (`State.averaged`)."""
    averages = {name[1:]: leaf for name, leaf in saved.items() if name[0] == "averaged"}
    return {name: leaf for name, leaf in saved.items() if name[0] != "averaged"} | averages


def leaves_by_name(tree: Any) -> dict[Name, Any]:
    return {name_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def name_of(path: tuple[Any, ...]) -> Name:
    """The keys, attributes or places that lead to a leaf, as Orbax writes them."""
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
