"""Writes docs/recipe.md, the reference of every recipe key, from the dataclasses that declare them:

python -m podium.recipe.reference > docs/recipe.md
"""

import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from typing import get_origin

from podium.recipe.keys import Key, all_keys, sections, tag, type_in_words
from podium.recipe.reading import shipped

_WIDTH = 100
_HEAD = f"""\
A recipe is a TOML file. `podium train --recipe FILE` reads one, and `--set KEY=VALUE` changes a value, as in `--set
data.image_size=128`. Shipped recipes, by name: {", ".join(f"`{name}`" for name in shipped())}. A wrong key, type
or value is reported in one line before anything starts. This page is generated from `src/podium/recipe/schema.py`.
"""


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from ("# Recipe keys", "", *textwrap.wrap(_HEAD, _WIDTH))
    for section, kinds in sections().items():
        yield from ("", f"## `[{section}]`" if section else "## At the top")
        for kind in kinds:
            yield from ("", *textwrap.wrap(_of_kind(section, kind, several=len(kinds) > 1), _WIDTH), "")
            for key in all_keys():
                if key.section == section and key.kind is kind and key.meaning:
                    yield from textwrap.wrap(_described(key), _WIDTH, initial_indent="- ", subsequent_indent="  ")


def _of_kind(section: str, kind: type, several: bool) -> str:
    """What the docstring of a section says, up to its first empty line."""
    if not section:
        return "These stand before the first section."
    words = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    if not several:
        return words
    field, name = tag(kind)
    return f'**`{section}.{field} = "{name}"`**: {words}'


def _described(key: Key) -> str:
    is_list = get_origin(key.type) is tuple
    values = key.bounds if is_list and key.bounds else f"{type_in_words(key.type)} {key.bounds}".rstrip()
    default = "required" if key.default is dataclasses.MISSING else f"default `{_as_toml(key.default)}`"
    return f"**`{key.path}`** ({values}; {default}). {key.meaning}"


def _as_toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value)) if isinstance(value, tuple) else str(value)


if __name__ == "__main__":
    print(page(), end="")
