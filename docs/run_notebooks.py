"""Runs a notebook as Jupyter would, cell by cell in an empty folder, and writes what its cells print into it:

    python docs/run_notebooks.py docs/notebooks/torus.ipynb [--check]

With --check the file stays as it is, and a cell that prints something else is named. What a notebook prints is the same
on every machine; figures that are not are left to whoever runs it.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def printed(cells: list[dict[str, Any]]) -> list[str]:
    """What each cell prints."""
    names: dict[str, Any] = {"__name__": "__main__"}
    texts = []
    for number, cell in enumerate(cells, 1):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
        texts.append(shown.getvalue())
    return texts


def run(file: Path, *, check: bool) -> list[str]:
    """Runs one notebook; the differences from what the file has, where they are only to be found."""
    notebook = json.loads(file.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["XDG_CACHE_HOME"] = folder  # images that are prepared by the way
        new = printed(cells)
    old = ["".join(line for output in cell["outputs"] for line in output["text"]) for cell in cells]
    if check:
        pairs = enumerate(zip(old, new, strict=True), 1)
        return [
            f"cell {number} of {file.name} prints\n{now}\ninstead of\n{was}"
            for number, (was, now) in pairs
            if was != now
        ]
    for number, (cell, text) in enumerate(zip(cells, new, strict=True), 1):
        stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
        cell.update(execution_count=number, outputs=[stream] if text else [])
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    return []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    sys.exit("\n".join(run(options.file.resolve(), check=options.check)) or 0)
