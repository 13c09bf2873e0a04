"""The reference of recipe keys, and the explanations that it is made of."""

import dataclasses
import typing
from pathlib import Path

import pytest

from podium.recipe.images import Data
from podium.recipe.keys import all_keys
from podium.recipe.optimization import Lars
from podium.recipe.reference import page
from podium.recipe.schema import Recipe

PAGE = Path(__file__).parents[2] / "docs" / "recipe.md"


def test_the_committed_page_is_current():
    assert PAGE.read_text() == page(), "run: python -m podium.recipe.reference > docs/recipe.md"


def test_every_key_but_a_choice_of_section_says_what_it_means():
    silent = [key for key in all_keys() if not key.meaning]
    assert all(len(typing.get_args(key.type)) == 1 for key in silent)  # Literal["sgd"]: explained by its section
    assert {key.path for key in silent} == {"optimizer.name", "schedule.decay"}


@pytest.mark.parametrize(
    "line",
    [
        "- **`epochs`** (a number greater than 0; required). Passes over the training images.",
        "- **`data.flip`** (true or false; default `true`). Whether half of the training images are mirrored.",
        '- **`torus`** (text; default `"auto"`). The grid of chips',
        "- **`optimizer.trust`** (a number greater than 0; default `0.001`). Trust coefficient",
    ],
)
def test_a_key_is_listed_with_its_type_bounds_default_and_meaning(line):
    assert line in page().replace("\n  ", " ")


def test_every_field_is_on_the_page_and_lines_fit_a_screen():
    text = page()
    for section, kind in (("", Recipe), ("data.", Data), ("optimizer.", Lars)):
        for field in dataclasses.fields(kind):
            assert f"{section}{field.name}" in text
    assert max(map(len, text.splitlines())) <= 100
