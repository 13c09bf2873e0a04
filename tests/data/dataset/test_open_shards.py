"""A host opens the shards of its share and no others."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.sharded import in_shards
from tests.support.small_runs import small_recipe

from podium.data.dataset.shards import ImageSet
from podium.data.input.loader import EvalLoader, TrainLoader, training_share
from podium.errors import UserError


@pytest.fixture(scope="module")
def sharded(small_data, tmp_path_factory):
    """96 images in 8 shards, 22 in 4."""
    return in_shards(small_data, tmp_path_factory.mktemp("sharded") / "data", train=8, validation=4)


def files(split, *numbers):
    return [f"{split}-{number:05d}-of-{8 if split == 'train' else 4:05d}.arrow" for number in numbers]


def test_no_shard_is_opened_before_one_of_its_images_is_asked_for(sharded, small_data):
    images, all_open = ImageSet.open(sharded, "train", whole=False), ImageSet.open(small_data, "train")
    assert images.open_files() == []
    assert (len(images), images.classes) == (96, all_open.classes)
    for index, opened in ((12, [1]), (95, [1, 7]), (50, [1, 4, 7])):
        assert images.image(index).tobytes() == all_open.image(index).tobytes()
        assert images.indexes[index].tobytes() == all_open.indexes[index].tobytes()
        assert images.name(index) == all_open.name(index)
        assert images.open_files() == files("train", *opened)
    rows = np.array([11, 12, 36])
    np.testing.assert_array_equal(images.labels_of(rows), all_open.labels[rows])
    np.testing.assert_array_equal(images.sizes_of(rows), all_open.sizes[rows])
    assert images.open_files() == files("train", 0, 1, 3, 4, 7)
    np.testing.assert_array_equal(images.labels, all_open.labels)
    assert len(images.open_files()) == 8


@pytest.mark.parametrize(
    ("first", "last", "opened"), [(0, 12, (0,)), (11, 13, (0, 1)), (13, 60, (1, 2, 3, 4)), (5, 5, ())]
)
def test_ranges_open_what_they_reach_into(sharded, first, last, opened):
    images = ImageSet.open(sharded, "train", whole=False)
    images.need_ranges([slice(first, last)])
    assert images.open_files() == files("train", *opened)


def test_an_epoch_of_a_host_opens_the_shards_of_its_share_alone(sharded, small_data):
    images, recipe, rows = ImageSet.open(sharded, "train", whole=False), small_recipe(), np.arange(4, 8)
    images.need_ranges(training_share(images, recipe, rows))
    opened = images.open_files()
    assert opened == files("train", 1, 2, 3, 4)  # places 4 to 7 of 16: images 24 to 48, and one beyond either end
    ours, theirs = (TrainLoader(i, recipe, rows) for i in (images, ImageSet.open(small_data, "train")))
    for step in range(12):
        batches = [loader.new_batch(step) for loader in (ours, theirs)]
        for loader, batch in zip((ours, theirs), batches, strict=True):
            loader.fill(batch, step)
        for name in batches[0]:
            np.testing.assert_array_equal(batches[0][name], batches[1][name])
    assert images.open_files() == opened


def test_an_evaluation_opens_the_shards_of_its_places_alone(sharded):
    images = ImageSet.open(sharded, "validation", whole=False)
    loader = EvalLoader(images, small_recipe().data, 16, rows=np.arange(2, 4))  # images 2, 3, 18 and 19
    for index in range(loader.batches):
        loader.fill(loader.new_batch(), index)
    assert images.open_files() == files("validation", 0, 3)


@pytest.mark.parametrize("balance", ["loss", "sampling"])
def test_what_depends_on_the_labels_of_all_images_opens_all(sharded, balance):
    images = ImageSet.open(sharded, "train", whole=False)
    recipe = small_recipe()
    images.need_ranges(
        training_share(images, replace(recipe, data=replace(recipe.data, balance=balance)), np.arange(4))
    )
    assert len(images.open_files()) == 8


def test_a_damaged_shard_is_told_when_it_is_needed(small_data, tmp_path):
    data = in_shards(small_data, tmp_path / "data", train=8)
    (data / files("train", 5)[0]).unlink()
    images = ImageSet.open(data, "train", whole=False)
    images.need_ranges([slice(0, 60), slice(72, 96)])
    with pytest.raises(UserError, match=r"train-00005-of-00008.arrow is damaged \(.*No such file"):
        images.labels_of(np.array([60]))
    with pytest.raises(UserError, match=r"train-00005-of-00008.arrow is damaged"):
        ImageSet.open(data, "train")


def test_whoever_forgets_to_open_a_shard_gets_no_empty_image(sharded):
    images = ImageSet.open(sharded, "train", whole=False)
    with pytest.raises(AssertionError, match="not open"):
        images.images.buffers(np.array([3]))
