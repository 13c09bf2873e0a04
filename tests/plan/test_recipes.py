"""The recipes of today, planned for eight GPUs and for a slice of v4, by their count."""

import pytest
from tests.recipe.todays import TODAY

from podium.plan.machines import parse_pod
from podium.plan.plan import make_plan
from podium.recipe.reading import load_recipe


def test_there_are_seven():
    assert len(TODAY) == 7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50-16-epochs", "resnet50-a1"])
def test_a_recipe_is_planned(name):
    for pod in ("h100:1x8", "v4:2x2x4"):  # one count serves both
        plan = make_plan(load_recipe(name), parse_pod(pod), compile_step=False)
        assert plan.fits
        assert plan.estimate.images_per_second > 1000
        assert any("are not counted apart" in note for note in plan.notes) == name.endswith("-epochs")
