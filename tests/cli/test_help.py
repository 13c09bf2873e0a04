"""What `--help` shows, word for word at 100 columns without colour, and what it must never show."""

import io
import re
import sys
from pathlib import Path

import pytest
from tests.support.snapshots import assert_snapshot

from podium.cli.main import parse

FOLDER = Path(__file__).parent / "help"
COMMANDS = (
    "", "train", "recipes", "launch", "doctor", "eval", "predict", "report", "export", "verify", "verify-resume",
    "prepare", "plan", "bench",
    "bench step", "bench input", "bench allreduce", "bench update", "bench pod", "bench accuracy", "bench all",
)  # fmt: skip


def page(command):
    return FOLDER / f"{'-'.join(['podium', *command.split()])}.txt"


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_is_what_was_committed(command, monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # the boxes depend on it
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with pytest.raises(SystemExit) as ended:
        parse([*command.split(), "--help"])
    assert ended.value.code == 0
    shown.seek(0)
    assert_snapshot(page(command), shown.read())


def test_every_command_has_a_page_and_every_page_a_command():
    assert {file.name for file in FOLDER.iterdir()} == {page(command).name for command in COMMANDS}
    for group in ("", "bench"):
        listed = re.search(r"\{(.*)\}", page(group).read_text())
        assert listed is not None
        for name in listed[1].split(","):
            assert f"{group} {name}".strip() in COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_names_no_type_of_python_and_no_default_twice(command):
    text = page(command).read_text()
    assert "None" not in text
    assert "what options" not in text
    assert not re.search(r"\b(STR|INT|FLOAT)\b|default: (False|''|\))", text)
    for entry in re.split(r"│ (?=-)", text):
        assert len(re.findall(r"[Dd]efault:", entry)) <= 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(shell, tmp_path):
    script = tmp_path / "podium"
    with pytest.raises(SystemExit) as ended:
        parse(["--tyro-write-completion", shell, str(script)])
    assert not ended.value.code
    text = script.read_text()
    for word in ("verify", "verify-resume", "max-minutes", "allreduce"):
        assert word in text
