"""The notebooks run from beginning to end, each in a process of its own, and print what they are committed with."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def run(notebook, *flags):
    command = [sys.executable, str(DOCS / "run_notebooks.py"), str(notebook), *flags]
    here = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=here)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_prints_what_it_is_committed_with(notebook):
    ended = run(notebook, "--check")
    assert ended.returncode == 0, ended.stderr


def test_every_notebook_is_linked_and_small():
    page = (DOCS / "notebooks" / "README.md").read_text()
    assert len(NOTEBOOKS) == 4
    assert all(f"({notebook.name})" in page and notebook.stat().st_size < 20_000 for notebook in NOTEBOOKS)


@pytest.mark.slow
def test_another_output_is_noticed_and_can_be_written(tmp_path):
    cell = {"cell_type": "code", "execution_count": 1, "id": "a", "metadata": {}, "source": ["print(2)"], "outputs": []}
    notebook = tmp_path / "small.ipynb"
    notebook.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    assert "cell 1 of small.ipynb prints" in run(notebook, "--check").stderr
    assert run(notebook).returncode == 0
    assert json.loads(notebook.read_text())["cells"][0]["outputs"][0]["text"] == ["2\n"]
    assert run(notebook, "--check").returncode == 0
