"""The recipes of today, planned for eight GPUs and for a slice of v4, by their count."""

import pytest
from tests.recipe.todays import TODAY

from podium.plan.machines import parse_pod
from podium.plan.plan import make_plan
from podium.recipe.reading import load_recipe


def test_there_are_seven():
    assert len(TODAY) == 7


@pytest.mark.slow
def test_a_recipe_whose_images_grow_is_planned_at_their_last_size():
    for pod in ("h100:1x8", "v4:2x2x4"):  # one count serves both
        plan = make_plan(load_recipe("resnet50-16-epochs"), parse_pod(pod), compile_step=False)
        assert plan.fits
        assert plan.estimate.images_per_second > 1000
        assert "every step is planned at 192 px; those at 160 px before are not counted apart" in plan.notes
