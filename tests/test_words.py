"""Words that the code does not use (CONTRIBUTING.md)."""

import ast
from pathlib import Path

SOURCES = sorted((Path(__file__).parents[1] / "src").rglob("*.py"))
CLUMSY = ("begins anew", "begin anew", "another recipe than", "goes on in", "speaks")


def texts(file: Path) -> list[tuple[int, str]]:
    """The strings that stand alone: of modules, classes, functions and fields."""
    nodes = (node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Expr))
    return [(n.lineno, n.value) for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def test_a_docstring_begins_with_a_verb_or_with_the_thing():
    found = [f"{file}:{line}" for file in SOURCES for line, text in texts(file) if text.lstrip().startswith("Of ")]
    assert found == []


def test_clumsy_words_are_gone():
    found = [(str(file), word) for file in SOURCES for word in CLUMSY if word in file.read_text()]
    assert found == []
