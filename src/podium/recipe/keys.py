"""Every key of a recipe, as its dataclasses declare it: the source of suggestions for a mistyped key, of the command
line's hints and of docs/recipe.md.
"""

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from podium.recipe.bounds import AlsoCalled, annotations, bounds_in_words
from podium.recipe.schema import Recipe


@dataclass(frozen=True)
class Key:
    section: str
    """Such as "optimizer"; empty for a key at the top."""
    kind: type
    """The dataclass that has the field."""
    name: str
    type: Any
    default: Any
    """`dataclasses.MISSING` where a recipe must give it."""
    bounds: str
    meaning: str
    also_called: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}" if self.section else self.name


@functools.cache
def sections() -> dict[str, tuple[type, ...]]:
    """The sections of a recipe, each with the kinds that it may be of; the top has no name."""
    hints = typing.get_type_hints(Recipe)
    found: dict[str, tuple[type, ...]] = {"": (Recipe,)}
    for name, hint in hints.items():
        kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if all(map(dataclasses.is_dataclass, kinds)):
            found[name] = kinds
    return found


@functools.cache
def all_keys() -> tuple[Key, ...]:
    """Keys in the order of their declaration; one that several kinds share is listed with each."""
    return tuple(key for section, kinds in sections().items() for kind in kinds for key in _keys(section, kind))


@functools.cache
def key_paths() -> frozenset[str]:
    """Every name that may stand in a recipe: "epochs", "optimizer.trust", and the sections themselves."""
    return frozenset(key.path for key in all_keys()).union(sections()) - {""}


def tag(kind: type) -> tuple[str, str]:
    """How a kind of section is chosen: ("name", "sgd") for the optimizer, ("decay", "cosine") for the schedule."""
    field = dataclasses.fields(kind)[0].name
    return field, typing.get_args(typing.get_type_hints(kind)[field])[0]


def _keys(section: str, kind: type) -> Iterable[Key]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name in sections():
            continue
        metadata = annotations(kind)[field.name]
        names = [name for note in metadata if isinstance(note, AlsoCalled) for name in note.names]
        yield Key(
            section=section,
            kind=kind,
            name=field.name,
            type=hints[field.name],
            default=field.default,
            bounds=bounds_in_words(metadata),
            meaning=next((note for note in metadata if isinstance(note, str)), ""),
            also_called=tuple(names),
        )


def right_key(given: str) -> str | None:
    """The key that was probably meant: of the same name in another section, one known elsewhere by the given name, or
    one spelled alike, best in the same section."""
    section, _, leaf = given.rpartition(".")
    keys = sorted(all_keys(), key=lambda key: key.section != section)
    for matches in (lambda key: key.name == leaf, lambda key: leaf in key.also_called):
        if found := next(filter(matches, keys), None):
            return found.path
    for among in ([key for key in keys if key.section == section], keys):
        if near := difflib.get_close_matches(leaf, [key.name for key in among], 1):
            return next(key.path for key in among if key.name == near[0])
    return None


def type_in_words(hint: Any) -> str:
    """Such as "a whole number" or "one of auto, bf16, fp32"."""
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(typing.get_args(hint))}"
    if typing.get_origin(hint) is tuple:
        return "a list of numbers"
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", list: "a list"}
    return names.get(hint, f"a {hint.__name__}")
