"""Recipes from TOML files, `--set key=value` and JSON, checked key by key and type by type. An unknown key, a wrong
type or a value outside its bounds ends in one line that says what to write instead.
"""

import dataclasses
import difflib
import json
import math
import tomllib
import types
import typing
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from podium.errors import UserError
from podium.recipe.schema import Data, Model, Optimizer, Recipe, Schedule


def load_recipe(name_or_file: str, overrides: typing.Sequence[str] = ()) -> Recipe:
    """A shipped recipe by name, or a TOML file by path, with `key=value` overrides applied."""
    text, name = _read(name_or_file)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name_or_file} is not valid TOML: {error}") from None
    table.setdefault("name", name)
    for override in overrides:
        _apply(table, override)
    return _build(Recipe, table, "")


def from_dict(table: dict[str, Any]) -> Recipe:
    return _build(Recipe, table, "")


def to_dict(recipe: Recipe) -> dict[str, Any]:
    """Plain JSON types; `from_dict` gives the same recipe back."""
    return typing.cast(dict[str, Any], json.loads(json.dumps(dataclasses.asdict(recipe))))


def shipped() -> list[str]:
    folder = resources.files("podium") / "recipe" / "shipped"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def _read(name_or_file: str) -> tuple[str, str]:
    if name_or_file in shipped():
        return (resources.files("podium") / "recipe" / "shipped" / f"{name_or_file}.toml").read_text(), name_or_file
    path = Path(name_or_file)
    if path.suffix == ".toml" or path.is_file():
        try:
            return path.read_text(), path.stem
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"recipe file {name_or_file} cannot be read: {error}; give a TOML file") from None
    raise UserError(
        f"there is no recipe {name_or_file!r}{_suggest(name_or_file, shipped())}; "
        f"shipped are {', '.join(shipped())}, or give a .toml file"
    )


def _apply(table: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override!r} is not key=value; write for example --set epochs=10")
    *sections, leaf = key.strip().split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {override!r}: {section!r} is a value, not a section")
    try:
        table[leaf] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[leaf] = value.strip()  # a bare word is a string: --set torus=2x4
    for left_over in _not_of(key.strip(), table[leaf]):  # by the optimizer or schedule that was there before
        table.pop(left_over, None)


def _build(cls: Any, table: dict[str, Any], where: str) -> Any:
    """A dataclass from a table, checking every key and type. `where` is the section, for messages."""
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}
    for key in table:
        if f"{where}{key}" in _all_keys() and key not in known:
            tag = next(iter(known))
            raise UserError(f"{where}{key} does nothing with {where}{tag}={table[tag]!r}; leave it out")
        if key not in known:
            raise UserError(f"unknown key {where}{key}{_suggest(key, _all_keys(), where)}")
    missing = [
        name for name, f in known.items()
        if name not in table and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]  # fmt: skip
    if missing:
        raise UserError(f"the recipe lacks {where}{missing[0]}; add it, or --set {where}{missing[0]}=…")
    return cls(**{key: _convert(hints[key], value, f"{where}{key}") for key, value in table.items()})


def _convert(hint: Any, value: Any, key: str) -> Any:
    origin = typing.get_origin(hint)
    if isinstance(hint, types.UnionType):
        return _choose_section(typing.get_args(hint), value, key)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise UserError(f"{key}={value!r} must be a section; write [{key}] in the recipe")
        return _build(hint, value, f"{key}.")
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise UserError(f"{key}={value!r} is not one of {', '.join(choices)}{_suggest(str(value), choices)}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{key}={value!r} must be a list of numbers, such as [30, 60, 80]")
        return tuple(_convert(typing.get_args(hint)[0], item, key) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise UserError(f"{key}={value!r} must be {_a_name(hint)}, not {_a_name(type(value))}")
    if hint is float and not math.isfinite(value):
        raise UserError(f"{key}={value!r} must be a finite number")
    return value


def _choose_section(choices: tuple[Any, ...], value: Any, key: str) -> Any:
    """One of several sections, told apart by its first field (`name` of an optimizer, `decay` of a schedule)."""
    tag, by_name = _tagged(choices)
    chosen = value.get(tag) if isinstance(value, dict) else None
    if not isinstance(chosen, str) or chosen not in by_name:
        raise UserError(f"{key}.{tag}={chosen!r} must be one of {', '.join(by_name)}")
    return _build(by_name[chosen], value, f"{key}.")


def _tagged(choices: tuple[Any, ...]) -> tuple[str, dict[str, Any]]:
    tag = dataclasses.fields(choices[0])[0].name
    return tag, {typing.get_args(typing.get_type_hints(c)[tag])[0]: c for c in choices}


def _not_of(key: str, chosen: Any) -> set[str]:
    """The fields that the others of a kind have and `chosen` has not, if `key` chooses one of them."""
    for section, kinds in (("optimizer", typing.get_args(Optimizer)), ("schedule", typing.get_args(Schedule))):
        tag, by_name = _tagged(kinds)
        if key == f"{section}.{tag}" and isinstance(chosen, str) and chosen in by_name:
            of_all = {f.name for kind in kinds for f in dataclasses.fields(kind)}
            return of_all - {f.name for f in dataclasses.fields(by_name[chosen])}
    return set()


def _all_keys() -> list[str]:
    sections = {
        "data": (Data,),
        "model": (Model,),
        "optimizer": typing.get_args(Optimizer),
        "schedule": typing.get_args(Schedule),
    }
    keys = [f.name for f in dataclasses.fields(Recipe)]
    for section, classes in sections.items():
        keys += sorted({f"{section}.{f.name}" for c in classes for f in dataclasses.fields(c)})
    return keys


def _suggest(given: str, choices: typing.Iterable[str], where: str = "") -> str:
    """' (did you mean …?)': the nearest choice, where a key in its right section counts as near."""
    choices = list(choices)
    same_leaf = [c for c in choices if c.rsplit(".", 1)[-1] == given]
    near = difflib.get_close_matches(f"{where}{given}", choices, 1) or difflib.get_close_matches(given, choices, 1)
    found = same_leaf or near
    return f" (did you mean {found[0]}?)" if found else ""


def _a_name(kind: type) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", list: "a list"}
    return names.get(kind, f"a {kind.__name__}")
