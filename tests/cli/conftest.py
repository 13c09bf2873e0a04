"""The command line, run in the tests' own process: as a person types it, but without another start of Python."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from podium.cli.main import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def podium(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs a command line."""

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["podium", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Answer(code, *capsys.readouterr())

    return run
