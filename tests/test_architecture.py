"""docs/architecture.md against the code: its drawing is the contract that import-linter keeps, no room is left out of
it, and its walks lead through files that are there."""

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


def test_the_walks_lead_through_files_that_are_there_and_are_counted():
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page[page.index("## Five walks") : page.index("## A run's directory")]
    counts = [tuple(map(int, row)) for row in re.findall(r"^\|.*?\| (\d+) \| (\d+) \| \d+ \|$", section, re.MULTILINE)]
    walks = re.findall(r"^\*\*One .*?(?=\n\n)", section, re.MULTILINE | re.DOTALL)
    counted = []
    for walk in walks:
        steps = re.findall(r"(↩ )?`([\w/]+\.py)`", walk)
        seen: set[str] = set()
        for back, file in steps:
            assert (ROOT / "src" / "podium" / file).is_file(), f"{file} is gone"
            assert bool(back) == (file in seen), f"{file} in {walk[:20]}"
            seen.add(file)
        counted.append((len(seen), sum(bool(back) for back, _ in steps)))
    assert counted == counts
