"""A command that gets the rest of its arguments on standard input, once it has loaded what it needs."""

import io
import sys

import pytest

import podium
from podium.cli import main


def type_(monkeypatch, *arguments, line):
    monkeypatch.setattr(sys, "argv", ["podium", *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO(line))


def test_arguments_that_come_later_are_added_to_those_that_were_typed(monkeypatch, capsys):
    type_(monkeypatch, "-", line='["--version"]\n')
    main.main()
    assert capsys.readouterr().out == f"podium {podium.__version__}\n"
    type_(monkeypatch, "train", "--recipe", "none", "-", line='["--process", "x"]\n')
    with pytest.raises(SystemExit):
        main.main()
    assert "--process" in capsys.readouterr().err


def test_a_command_that_is_no_longer_needed_ends_in_order(monkeypatch, capsys):
    type_(monkeypatch, "train", "-", line="")
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 0
    assert capsys.readouterr() == ("", "")
