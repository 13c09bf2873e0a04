"""The drawing in docs/architecture.md is the contract that import-linter keeps, and no room is left out of it."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _contract() -> list[set[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c for c in contracts if c["type"] == "layers")["layers"]
    return [{room.strip().removeprefix("podium.") for room in re.split(r"[|:]", layer)} for layer in layers]


def test_the_drawing_is_the_contract():
    drawing = re.search(r"```layers\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)
    assert drawing is not None
    assert [set(line.split()) for line in drawing[1].splitlines()] == _contract()[1:]  # __main__ only starts cli


def test_every_room_has_a_layer():
    package = ROOT / "src" / "podium"
    rooms = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    inside_data = {f"data.{path.name}" for path in (package / "data").iterdir() if (path / "__init__.py").exists()}
    assert (rooms - {"__init__", "data"}) | inside_data == set().union(*_contract())
