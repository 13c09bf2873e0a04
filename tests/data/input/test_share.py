"""The images that a host keeps are those that it reads, on whatever torus and with whatever batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.data.dataset.shards import ImageSet
from podium.data.input.cache import cached_bytes, choose_level
from podium.data.input.loader import EvalLoader, TrainLoader
from podium.data.input.order import Order, evaluation_batch, evaluation_batches, evaluation_share
from podium.data.input.share import join, runs
from podium.recipe.images import Data
from podium.recipe.reading import from_dict
from podium.recipe.torus import Shape, lay_out


def rows_of_hosts(shape, batch, span, block):
    """The places of each host of a described torus, whose chips are blocks of `block` rows × columns: the batch runs
    through the tiles row by row, and through the chips of a tile likewise (docs/torus.md)."""
    torus = lay_out(shape, batch, span)
    rows, cols, lanes = np.indices(shape).reshape(3, -1)
    tile = torus.tile
    key = (rows // tile.rows, cols // tile.cols, lanes // tile.lanes, rows % tile.rows, cols % tile.cols, lanes)
    order = np.lexsort(key[::-1])  # chips as the batch runs through them
    host = (rows // block[0]) * (shape.cols // block[1]) + cols // block[1]
    of_place = np.repeat(host[order], batch // shape.chips)
    return [np.flatnonzero(of_place == h) for h in range(host.max() + 1)]


def images_in(share):
    return {image for part in share for image in range(part.start, part.stop)}


@given(st.lists(st.integers(0, 60), unique=True))
def test_numbers_and_their_runs_are_the_same_set(numbers):
    share = runs(np.sort(np.array(numbers, np.int64)))
    assert images_in(share) == set(numbers)
    assert len(share) == len(numbers)
    assert (share.ranges[1:, 0] > share.ranges[:-1, 1]).all()  # apart: as few ranges as can be
    assert [n in share for n in range(-1, 62)] == [n in numbers for n in range(-1, 62)]


def test_ranges_that_meet_or_overlap_become_one():
    share = join(np.array([0, 3, 4, 9, 9]), np.array([3, 5, 6, 9, 12]))
    assert share.ranges.tolist() == [[0, 6], [9, 12]]


SHAPES = [Shape(4, 4), Shape(4, 6), Shape(2, 4, 2), Shape(6, 6)]


@given(data=st.data(), shape=st.sampled_from(SHAPES), images=st.integers(1, 700), seed=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_hosts_draw_only_from_their_share(data, shape, images, seed):
    batch = shape.chips * data.draw(st.integers(1, 5))
    span = data.draw(st.sampled_from([batch // shape.chips, 4 * batch // shape.chips, batch]))
    order = Order(images, batch, seed)
    for rows in rows_of_hosts(shape, batch, span, (2, 2)):
        share, steps = order.share(rows), 3 * images // batch + 3
        drawn = {int(image) for step in range(steps) for image in order.batch(step, rows)[0]}
        assert drawn <= images_in(share)


@given(data=st.data(), shape=st.sampled_from(SHAPES), images=st.integers(0, 700))
@settings(max_examples=40, deadline=None)
def test_hosts_evaluate_their_share_and_nothing_else(data, shape, images):
    batch = shape.chips * data.draw(st.integers(1, 5))
    span = data.draw(st.sampled_from([batch // shape.chips, 4 * batch // shape.chips, batch]))
    together = []
    for rows in rows_of_hosts(shape, batch, span, (2, 2)):
        seen = [evaluation_batch(images, batch, i, rows=rows) for i in range(evaluation_batches(images, batch))]
        share = images_in(evaluation_share(images, batch, rows))
        assert share == {int(image) for part in seen for image in part if image >= 0}
        together += share
    assert sorted(together) == list(range(images))


@pytest.mark.parametrize(
    ("shape", "batch", "span", "block"),
    [
        (Shape(32, 32), 32768, 32, (2, 4)),  # 128 hosts of eight chips, in rows of their own
        (Shape(32, 32), 32768, 256, (2, 4)),  # tiles of 8 chips
        (Shape(32, 32), 65536, 64 * 64, (4, 2)),  # tiles of 64 chips, of which a host has parts of several rows
        (Shape(16, 16, 2), 32768, 64, (2, 2)),  # two cores a chip
        (Shape(6, 6), 36 * 25, 25, (2, 3)),  # no power of two divides much of it
        (Shape(3, 3), 9 * 21, 21, (1, 1)),  # an odd batch
        (Shape(5, 7), 35 * 9, 9, (1, 7)),
    ],
)
@pytest.mark.parametrize("images", [1_281_167, 50_000])
def test_a_share_is_about_a_hosts_part(shape, batch, span, block, images):
    hosts = rows_of_hosts(shape, batch, span, block)
    fair = images / len(hosts)
    order = Order(images, batch, seed=0)
    for rows in hosts:
        assert fair <= len(order.share(rows)) <= 1.1 * fair + 2 * len(order.share(rows).ranges)
        padding = batch / len(hosts)  # the last batch is not full everywhere
        assert len(evaluation_share(images, batch, rows)) <= fair + padding


def test_a_power_of_two_has_the_shares_it_always_had():
    """Batches that are no powers of two got more shares in 0.2; the order of the others has not moved."""
    assert [Order(10**6, batch, 0).virtual_shards for batch in (32, 256, 4096, 32768)] == [32, 256, 1024, 1024]
    assert Order(100, 4096, 0).virtual_shards == 64
    assert [Order(10**6, batch, 0).virtual_shards for batch in (189, 900, 1009, 2018, 3000)] == [
        189,
        900,
        1009,
        1009,
        1000,
    ]


def test_the_level_is_that_of_the_share(small_data):
    images, data = ImageSet.open(small_data, "validation"), Data(image_size=24)
    rows = np.array([0, 1, 4, 5])  # of a batch of 8: not a span
    mine = np.flatnonzero(np.isin(np.arange(len(images)) % 8, rows))
    pixels = int(images.sizes[mine].astype(int).prod(axis=1).sum()) * 3
    loaders = [EvalLoader(images, data, 8, rows=rows, budget=budget) for budget in (pixels, pixels - 1)]
    assert [loader.cache.level for loader in loaders] == ["pixels", "bytes"]
    share = evaluation_share(len(images), 8, rows)
    assert cached_bytes(images, share, "pixels") == pixels
    everything = runs(np.arange(len(images)))
    assert choose_level(images, everything, "auto", budget_bytes=pixels) != "pixels"


def test_training_keeps_the_level_that_its_places_allow(small_data):
    images, rows = ImageSet.open(small_data, "train"), np.array([0, 1, 14, 15])
    share = Order(len(images), 16, 5).share(rows)
    assert len(share) <= 96 // 4 + 4
    budget = cached_bytes(images, share, "pixels")
    recipe = from_dict({
        "epochs": 2, "batch_global": 16, "seed": 5, "data": {"image_size": 24, "threads": 1},
        "model": {"norm_span": 4, "name": "resnet8", "stem": "conv3"},
        "optimizer": {"name": "sgd", "learning_rate": 0.1}, "schedule": {"decay": "cosine", "warmup_epochs": 0},
    })  # fmt: skip
    assert TrainLoader(images, recipe, rows, budget=budget).cache.level == "pixels"
