"""Texts that a person sees, compared with files in the repository. PODIUM_WRITE_SNAPSHOTS=1 writes them anew: look at
what `git diff` then shows before you commit it."""

import os
from pathlib import Path


def assert_snapshot(file: Path, text: str) -> None:
    lines = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    if os.environ.get("PODIUM_WRITE_SNAPSHOTS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(lines)
    assert lines == file.read_text()
