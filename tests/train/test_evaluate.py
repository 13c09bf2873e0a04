"""An evaluation counts every image once, and has no more than two batches under way: with all of them sent at once,
sixteen simulated chips came to a stop in a collective. Its figures are those that NumPy gets from the predictions."""

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from tests.support.small_runs import small_recipe

from podium.data.dataset.shards import ImageSet
from podium.data.input.loader import EvalLoader
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
    given: list[Any] = []
    finished: list[object] = []

    def program(state, totals, batch):
        finished.append(all(before["images"].is_ready() for before in given[:-1]))
        given.append(totals)
        return step.evaluate(state, totals, batch)

    evaluated = Evaluator(recipe, step, validation)(step.init(), 0, 0.0, program=program)
    assert evaluated.images == len(validation) == 22
    assert len(given) == 6
    assert all(finished)


class Linear(nnx.Module):
    """Eight classes from the mean colour: enough for the five best to be a choice."""

    def __init__(self, rngs):
        self.classifier = nnx.Linear(3, 8, kernel_init=nnx.initializers.normal(3.0), rngs=rngs)

    def __call__(self, x):
        return self.classifier(x.mean((1, 2)))


@pytest.fixture(scope="module")
def linear(small_data):
    """Images, the recipe, a step on two chips, and its untrained state."""
    images = ImageSet.open(small_data, "validation")
    recipe = small_recipe(batch_global=4, label_smoothing=0.3, model={"name": "resnet8", "norm_span": 4})
    recipe = recipe.for_data(8, 96, len(images))
    shape, devices = find_devices("1x2")
    step = build_step(recipe, build_mesh(lay_out(shape, 4, 4), devices), Linear)
    return images, recipe, step, step.init()


def test_loss_and_accuracies_are_means_over_the_images_without_smoothing_or_padding(linear):
    images, recipe, step, state = linear
    evaluated = Evaluator(recipe, step, images)(state, 7, 1.5)
    loader = EvalLoader(images, recipe.data, len(images), rows=np.arange(len(images)))
    batch = loader.new_batch()
    loader.fill(batch, 0)
    p, label = np.asarray(step.predict(state, batch["image"]), np.float64), batch["label"]
    order = np.argsort(-p, axis=1)
    assert (evaluated.step, evaluated.epoch, evaluated.images) == (7, 1.5, 22)
    np.testing.assert_allclose(evaluated.loss, -np.log(p[np.arange(22), label]).mean(), rtol=1e-4)
    assert evaluated.top1 == pytest.approx((order[:, 0] == label).mean())
    assert evaluated.top5 == pytest.approx((order[:, :5] == label[:, None]).any(1).mean())
    assert 0 < evaluated.top1 < evaluated.top5 < 1


def test_what_comes_between_batches_may_end_the_evaluation(linear):
    images, recipe, step, state = linear
    seen: list[object] = []

    def between_batches():
        seen.append(len(seen))
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Evaluator(recipe, step, images)(state, 0, 0.0, between_batches=between_batches)
    assert seen == [0, 1, 2]
    assert not [array for array in jax.tree.leaves(state) if array.is_deleted()]
