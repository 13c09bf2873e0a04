"""What a batch holds: the loader's arrays and the compiled programs' arguments are made from the same description."""

import dataclasses

import jax
import numpy as np
import pytest

from podium.data.dataset.shards import ImageSet
from podium.data.input.loader import EvalLoader, TrainLoader
from podium.mesh import batch_sharding, build_mesh
from podium.recipe.batch import eval_batch, train_batch
from podium.recipe.reading import load_recipe
from podium.recipe.schema import Data
from podium.recipe.torus import Shape, Torus
from podium.step.programs import batch_shapes


def test_a_batch_has_images_labels_and_with_jitter_colours():
    plain, jittered = Data(image_size=8), Data(image_size=8, colour_jitter=0.4)
    image_and_label = {"image": ((2, 5, 8, 8, 3), "uint8"), "label": ((2, 5), "int32")}
    assert train_batch(plain, 2, 5) == image_and_label
    assert train_batch(jittered, 2, 5) == {**image_and_label, "colour": ((2, 5, 3), "float32")}
    assert eval_batch(jittered, 5) == {"image": ((5, 8, 8, 3), "uint8"), "label": ((5,), "int32")}


@pytest.mark.parametrize("colour_jitter", [0.0, 0.4])
def test_the_loaders_arrays_are_what_the_programs_are_compiled_for(small_data, colour_jitter):
    recipe = load_recipe("demo", ["torus=auto", "steps_per_dispatch=3", f"data.colour_jitter={colour_jitter}"])
    recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, cache="none"))
    mesh = build_mesh(Torus(Shape(1, 1)), jax.devices()[:1])
    rows = np.arange(recipe.batch_global)
    train = TrainLoader(ImageSet.open(small_data, "train"), recipe, rows)
    evaluation = EvalLoader(ImageSet.open(small_data, "validation"), recipe.data, recipe.batch_global, rows=rows)
    for loader, leading, steps in ((train, 1, 3), (evaluation, 0, None)):
        compiled_for = batch_shapes(recipe, batch_sharding(mesh, leading), steps)
        assert {name: (array.shape, array.dtype) for name, array in loader.new_batch().items()} == {
            name: (shape.shape, shape.dtype) for name, shape in compiled_for.items()
        }
        loader.cache.close()
