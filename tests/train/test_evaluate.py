"""An evaluation counts every image once, and has no more than two batches under way: with all of them sent at once,
sixteen simulated chips came to a stop in a collective."""

import pytest
from tests.support.small_runs import small_recipe

from podium.data.dataset.shards import ImageSet
from podium.mesh import build_mesh, find_devices
from podium.recipe.torus import lay_out
from podium.step.programs import build_step
from podium.train.evaluate import Evaluator

pytestmark = pytest.mark.slow


def test_every_image_is_counted_and_two_batches_are_under_way(small_data):
    validation = ImageSet.open(small_data, "validation")
    recipe = small_recipe(batch_global=4, model={"name": "resnet8", "stem": "conv7", "norm_span": 4}, torus="2x2")
    recipe = recipe.for_data(3, 96, len(validation))
    shape, devices = find_devices("2x2")
    step = build_step(recipe, build_mesh(lay_out(shape, 4, 4), devices))
    given, finished = [], []

    def program(state, totals, batch):
        finished.append(all(before["images"].is_ready() for before in given[:-1]))
        given.append(totals)
        return step.evaluate(state, totals, batch)

    evaluated = Evaluator(recipe, step, validation)(step.init(), 0, 0.0, program=program)
    assert evaluated.images == len(validation) == 22
    assert len(given) == 6
    assert all(finished)
