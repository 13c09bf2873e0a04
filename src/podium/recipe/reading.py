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
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from podium.errors import UserError
from podium.recipe.keys import all_keys, key_paths, right_key, sections, tag, type_in_words
from podium.recipe.schema import Recipe

_ABSENT = {
    **dict.fromkeys(
        ("pretrained", "weights", "checkpoint"), "weights to start from are not part of a recipe; use --weights"
    ),
    **dict.fromkeys(
        ("aug_repeats", "repeated_aug", "ra_sampler"), "an image stands once in a batch here; leave it out"
    ),
}
"""What other programs have and a recipe has not, and what comes nearest."""


def load_recipe(name_or_file: str, overrides: Sequence[str] = ()) -> Recipe:
    """A shipped recipe by name, or a TOML file by path, with `key=value` overrides applied as by `--set`.

    >>> from podium import load_recipe
    >>> load_recipe("demo", ["torus=2x2", "optimizer.learning_rate=0.1"]).optimizer.learning_rate
    0.1
    >>> load_recipe("demo", ["batch_size=64"])
    Traceback (most recent call last):
    podium.errors.UserError: unknown key batch_size (did you mean batch_global?)
    """
    text, name = _read(name_or_file)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name_or_file} is not valid TOML: {error}") from None
    table.setdefault("name", name)
    epochs = table.get("epochs")
    for override in overrides:
        _apply(table, override)
    _scale_steps(table, epochs, overrides)
    return _build(Recipe, table, "")


def with_overrides(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """A recipe with `key=value` overrides applied, as by `--set`."""
    table = to_dict(recipe)
    for override in overrides:
        _apply(table, override)
    _scale_steps(table, recipe.epochs, overrides)
    return _build(Recipe, table, "")


_AT_EPOCHS = (("schedule", "at_epochs"), ("data", "early_epochs"))


def _scale_steps(table: dict[str, Any], epochs_before: Any, overrides: Sequence[str]) -> None:
    """Where epochs were changed, the steps of the learning rate and of the images' size move with them, unless they
    were given too."""
    epochs = table.get("epochs")
    for section, key in _AT_EPOCHS:
        given = any(override.startswith(f"{section}.{key}") for override in overrides)
        at = table[section].get(key) if isinstance(table.get(section), dict) else None
        if given or not isinstance(at, list) or epochs == epochs_before:
            continue
        if all(isinstance(n, int | float) and n > 0 for n in (epochs, epochs_before, *at)):
            table[section][key] = [round(n * epochs / epochs_before, 4) for n in at]


def from_dict(table: dict[str, Any]) -> Recipe:
    return _build(Recipe, table, "")


def from_run(table: dict[str, Any]) -> Recipe:
    """The recipe of a run, as `to_dict` wrote it in this version or an earlier one: what a version did not know yet is
    what it did, not today's default."""
    model = table.get("model", {})
    if model.get("stem") != "patches":  # whose layers have no stride, so that any padding is the same
        table = {**table, "model": {"padding": "same", **model}}
    return from_dict({**table, "data": {"order": "v1", **table.get("data", {})}})


def to_dict(recipe: Recipe) -> dict[str, Any]:
    """Plain JSON types; `from_dict` gives the same recipe back."""
    return typing.cast(dict[str, Any], json.loads(json.dumps(dataclasses.asdict(recipe))))


def shipped() -> list[str]:
    folder = resources.files("podium") / "recipe" / "shipped"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def recipe_text(name_or_file: str) -> str:
    """The TOML of a recipe, with its comments."""
    return _read(name_or_file)[0]


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
        f"there is no recipe {name_or_file!r}{_nearest(name_or_file, shipped())}; "
        f"shipped are {', '.join(shipped())}, or give a .toml file"
    )


def _apply(table: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override!r} is not key=value; write for example --set epochs=10")
    *path, leaf = key.strip().split(".")
    for section in path:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {override!r}: {section!r} is a value, not a section")
    try:
        table[leaf] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[leaf] = value.strip()  # a bare word is a string: --set torus=2x4
    for left_over in _not_of(key.strip(), table[leaf]):  # by the optimizer or schedule that was there before
        table.pop(left_over, None)


def _not_of(key: str, chosen: Any) -> set[str]:
    """The fields that the others of a kind have and `chosen` has not, if `key` chooses one of them."""
    section, _, leaf = key.partition(".")
    kinds = sections().get(section, ())
    for kind in kinds if len(kinds) > 1 else ():
        if (leaf, chosen) == tag(kind):
            of_all = {other.name for other in all_keys() if other.section == section}
            return of_all - {field.name for field in dataclasses.fields(kind)}
    return set()


def _build(cls: Any, table: dict[str, Any], where: str) -> Any:
    """A dataclass from a table, checking every key and type. `where` is the section, for messages."""
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}
    for key in table:
        if key not in known:
            raise _unknown(f"{where}{key}", cls, where)
    missing = [
        name for name, f in known.items()
        if name not in table and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]  # fmt: skip
    if missing:
        raise UserError(f"the recipe lacks {where}{missing[0]}; add it, or --set {where}{missing[0]}=…")
    return cls(**{key: _convert(hints[key], value, f"{where}{key}") for key, value in table.items()})


def _unknown(key: str, cls: type, where: str) -> UserError:
    if key in key_paths():  # of another optimizer or schedule
        field, chosen = tag(cls)
        return UserError(f"{key} does nothing with {where}{field}={chosen!r}; leave it out")
    if reason := _ABSENT.get(key.rpartition(".")[2]):
        return UserError(f"unknown key {key}: {reason}")
    if meant := right_key(key):
        return UserError(f"unknown key {key} (did you mean {meant}?)")
    here = ", ".join(f.name for f in dataclasses.fields(cls))
    return UserError(f"unknown key {key}; {f'section {where[:-1]}' if where else 'a recipe'} has {here}")


def _convert(hint: Any, value: Any, key: str) -> Any:
    origin = typing.get_origin(hint)
    if isinstance(hint, types.UnionType) or dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise UserError(f"{key}={value!r} must be a section; write [{key}] in the recipe")
        return _build(_kind(key, value), value, f"{key}.")
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise UserError(f"{key}={value!r} is not one of {', '.join(choices)}{_nearest(str(value), choices)}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{key}={value!r} must be a list of numbers, such as [30, 60, 80]")
        return tuple(_convert(typing.get_args(hint)[0], item, key) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise UserError(f"{key}={value!r} must be {type_in_words(hint)}, not {type_in_words(type(value))}")
    if hint is float and not math.isfinite(value):
        raise UserError(f"{key}={value!r} must be a finite number")
    return value


def _kind(section: str, table: dict[str, Any]) -> type:
    """Which of several sections this is, told apart by its first field (`name` of an optimizer, `decay` of a
    schedule)."""
    kinds = sections()[section]
    if len(kinds) == 1:
        return kinds[0]
    by_tag = {tag(kind): kind for kind in kinds}
    field = tag(kinds[0])[0]
    names = ", ".join(name for _, name in by_tag)
    if field not in table:
        raise UserError(f"the recipe lacks {section}.{field}; it is one of {names}")
    for (_, name), kind in by_tag.items():
        if table[field] == name:
            return kind
    raise UserError(f"{section}.{field}={table[field]!r} must be one of {names}")


def _nearest(given: str, choices: Sequence[str]) -> str:
    """' (did you mean …?)', or nothing."""
    near = difflib.get_close_matches(given, choices, 1)
    return f" (did you mean {near[0]}?)" if near else ""
