"""Bounds that stand at a recipe's fields, in their `Annotated` types, and the one walk that checks them all.

    momentum: Annotated[float, at_least(0), below(1), "Share of the last update that is added to the next."] = 0.9

The text explains the field; docs/recipe.md is made of these. Names that other programs use for the same thing
(`also_called`) let a wrong key be answered with the right one.
"""

import dataclasses
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from podium.errors import UserError


@dataclass(frozen=True)
class Bound:
    words: str
    """What comes after "must be"."""
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class AlsoCalled:
    names: tuple[str, ...]


def above(least: float) -> Bound:
    return Bound(f"greater than {least:g}", lambda value: all(item > least for item in _items(value)))


def at_least(least: float) -> Bound:
    return Bound(f"at least {least:g}", lambda value: all(item >= least for item in _items(value)))


def below(most: float) -> Bound:
    return Bound(f"below {most:g}", lambda value: all(item < most for item in _items(value)))


def at_most(most: float) -> Bound:
    return Bound(f"at most {most:g}", lambda value: all(item <= most for item in _items(value)))


def also_called(*names: str) -> AlsoCalled:
    return AlsoCalled(names)


rgb = Bound("three numbers (red, green, blue)", lambda value: len(value) == 3)


def annotations(section: type) -> dict[str, tuple[Any, ...]]:
    """What each field of a dataclass carries in its `Annotated` type: bounds, an explanation, other names."""
    hints = typing.get_type_hints(section, include_extras=True)
    return {field.name: getattr(hints[field.name], "__metadata__", ()) for field in dataclasses.fields(section)}


def bounds_in_words(metadata: tuple[Any, ...]) -> str:
    """Such as "at least 0 and below 1"; empty without bounds."""
    return " and ".join(note.words for note in metadata if isinstance(note, Bound))


def check_bounds(section: Any, where: str = "") -> None:
    """Raises at the first field, of this dataclass or of one inside it, that is out of its bounds."""
    for name, metadata in annotations(type(section)).items():
        value = getattr(section, name)
        if dataclasses.is_dataclass(value):
            check_bounds(value, f"{where}{name}.")
        elif not all(note.holds(value) for note in metadata if isinstance(note, Bound)):
            given = list(value) if isinstance(value, tuple) else value
            raise UserError(f"{where}{name}={given} must be {bounds_in_words(metadata)}")


def _items(value: Any) -> Iterator[Any]:
    return iter(value if isinstance(value, tuple) else (value,))
