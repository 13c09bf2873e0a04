"""The sizes that CONTRIBUTING.md asks of the code, counted: lines of a file and of a function, parameters, and imports
inside functions."""

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ALL = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "results").rglob("*.py"))]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def functions(file: Path) -> list[tuple[str, Function]]:
    found = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, Function))
    return [(f"{file.relative_to(ROOT)}:{node.lineno} {node.name}", node) for node in found]


def parameters(function: Function) -> tuple[int, int]:
    """All of them, and those that are given by their place. An object's own is not counted."""
    by_place = [a.arg for a in (*function.args.posonlyargs, *function.args.args) if a.arg not in ("self", "cls")]
    return len(by_place) + len(function.args.kwonlyargs), len(by_place)


def test_no_file_is_longer_than_300_lines():
    native = [file for kind in ("*/*.cpp", "*/*.h") for file in sorted((ROOT / "native").glob(kind))]
    lines = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in (*SOURCES, *native)}
    assert {name: count for name, count in lines.items() if count > 300} == {}


def test_no_function_is_longer_than_60_lines():
    found = {name: f.end_lineno - f.lineno + 1 for file in ALL for name, f in functions(file) if f.end_lineno}
    assert {name: lines for name, lines in found.items() if lines > 60} == {}


def test_no_function_takes_more_than_7_parameters_or_3_by_their_place():
    found = {name: parameters(f) for file in SOURCES for name, f in functions(file)}
    assert {name: (most, by_place) for name, (most, by_place) in found.items() if most > 7 or by_place > 3} == {}


def late_imports() -> Iterator[tuple[str, str, bool]]:
    """The place, the package, and whether a comment stands there."""
    for file in SOURCES:
        lines = file.read_text().splitlines()
        for name, function in functions(file):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    module = node.names[0].name if isinstance(node, ast.Import) else str(node.module)
                    said = "#" in lines[node.lineno - 1] or lines[node.lineno - 2].lstrip().startswith("#")
                    yield name, module, said


def test_imports_inside_functions_are_few_and_have_a_reason():
    """An optional extra is one; another stands in a comment."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {re.split(r"[\[<>=]", p)[0] for extra in extras.values() for p in extra}
    by_name = {"tensorflow": "tensorflow-cpu", "nvidia": "nvidia-dali-cuda120", "cv2": "opencv-python-headless"}
    found = list(late_imports())
    assert len(found) <= 15
    for place, module, said in found:
        top = module.partition(".")[0]
        assert said or by_name.get(top, top.replace("_", "-")) in packages, f"{place} imports {module}: say why"


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("def f(): pass", (0, 0)),
        ("def f(self, a, b=1, /, c=2): pass", (3, 3)),
        ("async def f(a, *rest, b, c=1, **more): pass", (3, 1)),
    ],
)
def test_parameters_are_counted(text, counted):
    (function,) = ast.parse(text).body
    assert isinstance(function, Function)
    assert parameters(function) == counted
