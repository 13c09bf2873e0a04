"""What a batch holds: the loader's arrays and the compiled programs' arguments are made from the same description."""

import dataclasses

import jax
import numpy as np
import pytest

from podium.data.dataset.shards import ImageSet
from podium.data.input.loader import EvalLoader, TrainLoader
from podium.mesh import build_mesh
from podium.recipe.batch import eval_batch, pack_images, packed, train_batch
from podium.recipe.reading import load_recipe
from podium.recipe.torus import Shape, Torus
from podium.step.programs import batch_shapes, build_step


def test_a_batch_has_images_labels_and_with_jitter_colours():
    plain, jittered = (
        load_recipe("demo", ["data.image_size=8", f"data.colour_jitter={jitter}"]) for jitter in (0, 0.4)
    )
    image_and_label = {"image": ((2, 5, 8, 8, 3), "uint8"), "label": ((2, 5), "int32")}
    assert train_batch(plain, 2, 5) == image_and_label
    assert train_batch(jittered, 2, 5) == {**image_and_label, "colour": ((2, 5, 3), "float32")}
    assert eval_batch(jittered.data, 5) == {"image": ((5, 8, 8, 3), "uint8"), "label": ((5,), "int32")}


EVERYTHING = (
    "data.colour_jitter=0.4", "augment.mixup=0.2", "augment.erasing=0.3", "data.balance=loss", "data.eval_size=80",
)  # fmt: skip


@pytest.mark.parametrize("changes", [(), EVERYTHING])
def test_the_loaders_arrays_are_what_the_programs_are_compiled_for(small_data, changes):
    recipe = load_recipe("demo", ["torus=auto", "steps_per_dispatch=3", *changes])
    recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, cache="none"))
    recipe = recipe.for_data(3, 96, 22)
    step = build_step(recipe, build_mesh(Torus(Shape(1, 1)), jax.devices()[:1]))
    rows = np.arange(recipe.batch_global)
    train = TrainLoader(ImageSet.open(small_data, "train"), recipe, rows)
    evaluation = EvalLoader(ImageSet.open(small_data, "validation"), recipe.data, recipe.batch_global, rows=rows)
    for loader, steps in ((train, 3), (evaluation, None)):
        compiled_for = batch_shapes(recipe, step, steps)
        assert {name: (array.shape, array.dtype) for name, array in loader.new_batch().items()} == {
            name: (shape.shape, shape.dtype) for name, shape in compiled_for.items()
        }
        loader.cache.close()


def test_packed_images_hold_two_rows_of_eight_columns_of_every_example():
    images = np.random.default_rng(0).integers(0, 256, (3, 2, 16, 24, 3), dtype=np.uint8)  # [steps, examples, …]
    blocks = pack_images(images)
    assert blocks.shape == (3, 8, 3, 2, 48)
    assert blocks.flags.c_contiguous
    for row, column in np.ndindex(16, 24):
        at = 3 * (8 * (row % 2) + column % 8)
        np.testing.assert_array_equal(blocks[:, row // 2, column // 8, :, at : at + 3], images[:, :, row, column])


def test_blocks_of_chips_follow_each_other():
    parts = train_batch(load_recipe("demo", ["data.image_size=16"]), 3, 8)
    assert packed(parts, 4) == {**parts, "image": ((3, 4 * 8, 2, 2, 48), "uint8")}
