"""What `--help` shows, word for word, and what the pages must never show."""

import re

import pytest
from tests.support.help_pages import COMMANDS, FOLDER, page, render


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_is_what_was_committed(command):
    assert render(command) == page(command).read_text(), "to write it anew: python -m tests.support.help_pages"


def test_every_command_has_a_page_and_every_page_a_command():
    assert {file.name for file in FOLDER.iterdir()} == {page(command).name for command in COMMANDS}
    listed = re.search(r"\{(.*)\}", page("").read_text())
    assert listed is not None
    assert set(listed[1].split(",")) == {command for command in COMMANDS if command and " " not in command}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_names_no_type_of_python_and_no_default_twice(command):
    text = page(command).read_text()
    assert "None" not in text
    assert "what options" not in text
    assert not re.search(r"\b(STR|INT|FLOAT)\b|default: (False|''|\))", text)
    for entry in re.split(r"│ (?=-)", text):
        assert len(re.findall(r"[Dd]efault:", entry)) <= 1
