"""The loader for any JAX program: the batches of training, on the devices, without the axis of a dispatch."""

import dataclasses
import threading

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from podium.data.dataset.shards import ImageSet
from podium.data.input.device_batches import Loader
from podium.data.input.host_batches import NumpyLoader
from podium.data.input.loader import TrainLoader
from podium.errors import UserError
from podium.mesh import build_mesh
from podium.recipe.reading import load_recipe
from podium.recipe.torus import Shape, Torus

RECIPE = load_recipe(
    "demo", ["torus=2x2", "batch_global=16", "model.norm_span=4", "data.image_size=24", "data.colour_jitter=0.3"]
)


@pytest.fixture
def loader(small_data):
    loader = Loader(small_data, dataclasses.replace(RECIPE, steps_per_dispatch=4))
    yield loader
    loader.close()


def expected(small_data, step):
    """What training's own loader gives at a step."""
    reference = TrainLoader(ImageSet.open(small_data, "train"), RECIPE, np.arange(16))
    batch = reference.new_batch()
    reference.fill(batch, step)
    reference.close()
    return {name: part[0] for name, part in batch.items()}


def test_batches_are_those_of_training_from_any_step_on(loader, small_data):
    for first_step in (0, 5):  # 96 images: step 5 is the last of the first epoch
        batches = list(loader.steps(2, first_step=first_step))
        assert len(batches) == 2
        for step, batch in enumerate(batches, first_step):
            reference = expected(small_data, step)
            assert set(batch) == set(reference) == {"image", "label", "colour"}
            for name, part in batch.items():
                np.testing.assert_array_equal(part, reference[name])


def test_each_chip_holds_its_part_of_a_batch(loader):
    (batch,) = loader.steps(1)
    for part in batch.values():
        assert len(part.sharding.device_set) == 4
        assert {shard.data.shape[0] for shard in part.addressable_shards} == {4}


def test_a_mesh_of_your_own_takes_the_place_of_the_recipes(small_data):
    loader = Loader(small_data, RECIPE, build_mesh(Torus(Shape(1, 2)), jax.devices()[:2]))
    (batch,) = loader.steps(1)
    loader.close()
    assert {shard.data.shape for shard in batch["label"].addressable_shards} == {(8,)}


@pytest.mark.parametrize(("spec", "held"), [(PartitionSpec("data"), 8), (PartitionSpec(), 16)])
def test_any_sharding_of_the_examples_will_do(small_data, spec, held):
    mesh = jax.make_mesh((2, 2), ("data", "model"), devices=jax.devices()[:4])
    loader = Loader(small_data, RECIPE, NamedSharding(mesh, spec))
    (batch,) = loader.steps(1)
    loader.close()
    np.testing.assert_array_equal(batch["image"], expected(small_data, 0)["image"])
    assert {shard.data.shape for shard in batch["label"].addressable_shards} == {(held,)}


def test_a_sharding_of_pixels_is_refused(small_data):
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
    with pytest.raises(UserError, match="more than the examples"):
        Loader(small_data, RECIPE, NamedSharding(mesh, PartitionSpec(None, "data")))


def test_numpy_programs_share_the_batches_of_training(small_data):
    loaders = [NumpyLoader(small_data, RECIPE, part=part, parts=4) for part in range(4)]
    for step, parts in enumerate(zip(range(2), *loaders, strict=False)):
        whole = {name: np.concatenate([part[name] for part in parts[1:]]) for name in parts[1]}
        for name, reference in expected(small_data, step).items():
            np.testing.assert_array_equal(whole[name], reference)
    for loader in loaders:
        loader.close()


@pytest.mark.parametrize(("part", "parts"), [(2, 2), (-1, 2), (0, 3)])
def test_a_part_that_is_none_is_refused(small_data, part, parts):
    with pytest.raises(UserError, match="parts must divide the batch"):
        NumpyLoader(small_data, RECIPE, part=part, parts=parts)


def test_whoever_breaks_off_leaves_no_thread_behind(loader):
    before = {thread.name for thread in threading.enumerate()}
    for batch in (steps := loader.steps(100)):
        assert batch["label"].shape == (16,)
        break
    steps.close()
    assert "podium-feed" not in {thread.name for thread in threading.enumerate()} - before


def test_a_directory_without_images_is_the_users_mistake(tmp_path):
    with pytest.raises(UserError, match=str(tmp_path)):
        Loader(tmp_path, RECIPE)
