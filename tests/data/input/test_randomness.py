"""What is drawn has the distribution that it should, and draws have nothing to do with each other. Seeds are fixed, so
a test passes always or never; its limit is one that good randomness would pass all but once in a million times.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from podium.data.input import counter_rng
from podium.data.input.augment import train_crops
from podium.data.input.order import Order
from podium.recipe.schema import Data

ERROR_RATE = 1e-6  # of each figure, were the seed drawn anew
SIGMAS = stats.norm.isf(ERROR_RATE / 2)  # 4.9


def assert_uniform(counts):
    counts = np.asarray(counts, float)
    expected = counts.mean()
    assert expected >= 10  # below, chi square is no good measure
    chance = stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1)
    assert chance > ERROR_RATE


def assert_independent(*draws):
    """No pair is correlated, neither as it is nor by its distance from the mean."""
    drawn = np.stack([np.ravel(d).astype(float) for d in draws])
    for values in (drawn, np.abs(drawn - drawn.mean(axis=1, keepdims=True))):
        values = values[values.std(axis=1) > 1e-9]
        off_diagonal = np.corrcoef(values)[np.triu_indices(len(values), 1)]
        assert np.abs(off_diagonal).max() < SIGMAS / np.sqrt(drawn.shape[1])


SIZE = 4096
PERMUTED = np.stack(
    [counter_rng.permute(np.arange(SIZE), np.full(SIZE, SIZE), np.full(SIZE, key)) for key in range(64)]
)


@pytest.mark.parametrize("index", [0, 1, 63, 64, 2048, 4095])
def test_an_image_lands_anywhere_in_the_shuffle(index):
    keys = np.arange(4000)
    places = counter_rng.permute(np.full(4000, index), np.full(4000, SIZE), counter_rng.key(7, keys))
    for bins in (places >> 8, places & 15):  # the high half and the low half of the network
        assert_uniform(np.bincount(bins, minlength=16))


@pytest.mark.parametrize("distance", [1, 2, 32, 64, 128, 2048])
def test_neighbours_part_in_the_shuffle(distance):
    """A network of one or two rounds keeps half of the difference of two indices, whatever the key: one bin holds all,
    16 times its part. Four rounds on halves of six bits are seen to keep a quarter of a bin too much, which harms no
    training, so the limit is a half."""
    pairs = PERMUTED ^ np.roll(PERMUTED, -distance, axis=1)
    for half in (pairs >> 6, pairs & 63):
        counts = np.bincount(half.ravel() >> 2, minlength=16)
        assert np.abs(counts / counts.mean() - 1).max() < 0.5


def test_a_shuffle_does_not_follow_the_stored_order():
    assert_independent(np.tile(np.arange(SIZE), len(PERMUTED)), PERMUTED.ravel(), np.roll(PERMUTED, 1, axis=1).ravel())


def test_epochs_and_seeds_shuffle_independently():
    orders = [Order(8192, 8192, seed).batch(epoch)[0] % 8 for seed, epoch in itertools.product((0, 1), (0, 1, 2))]
    assert_independent(*orders)


def test_uniform_numbers_are_uniform_and_independent_whatever_makes_the_key():
    for keys in (
        counter_rng.key(0, 0, np.arange(20_000)),  # samples
        counter_rng.key(0, np.arange(20_000), 5),  # epochs
        counter_rng.key(np.arange(20_000), 0, 5),  # seeds
    ):
        draws = counter_rng.uniform(keys, 0, 6)
        for column in draws.T:
            assert_uniform(np.bincount((column * 64).astype(int), minlength=64))
        assert_independent(*draws.T, np.roll(draws[:, 0], 1))


N, WIDTH, HEIGHT = 20_000, 40, 30


def drawn(seed=3, epoch=0, **data):
    sizes = np.tile(np.array([[WIDTH, HEIGHT]], np.int32), (N, 1))
    return train_crops(
        Data(colour_jitter=0.4, flip=True, **data), seed, np.full(N, epoch), samples=np.arange(N), sizes=sizes
    )


@pytest.mark.parametrize("crop", ["resized", "shifted"])
def test_flip_brightness_contrast_saturation_and_place_are_drawn_apart(crop):
    first, later, other_seed = drawn(crop=crop), drawn(crop=crop, epoch=1), drawn(crop=crop, seed=4)
    x, y, width, height = first.boxes.T
    # With little room there are few places, whose mean distance from the middle is larger: half a place is added.
    place = ((x + 0.5) / (WIDTH - width + 1), (y + 0.5) / (HEIGHT - height + 1)) if crop == "resized" else (x, y)
    draws = [first.flips, *first.colours.T, *place]
    assert_independent(*draws, later.flips, *later.colours.T, other_seed.flips, *other_seed.colours.T)
    assert_independent(width * height, first.flips, *first.colours.T)


def test_flips_are_even_and_colours_uniform():
    crops = drawn()
    assert_uniform(np.bincount(crops.flips, minlength=2))
    for factors in crops.colours.T:
        assert_uniform(np.histogram(factors, bins=32, range=(0.6, 1.4))[0])


@pytest.mark.parametrize(("axis", "length"), [(0, WIDTH), (1, HEIGHT)])
def test_resized_crops_begin_anywhere_and_reach_both_edges(axis, length):
    """Given its size, a crop touches an edge with probability 1 / (room + 1)."""
    boxes = drawn(crop="resized").boxes
    begin, room = boxes[:, axis], length - boxes[:, 2 + axis]
    begin, room = begin[room > 0], room[room > 0]
    chance = 1 / (room + 1)
    for touches in (begin == 0, begin == room):
        z = (touches.sum() - chance.sum()) / np.sqrt((chance * (1 - chance)).sum())
        assert abs(z) < SIGMAS
    middle = begin[room == 11]
    assert_uniform(np.bincount(middle, minlength=12))
