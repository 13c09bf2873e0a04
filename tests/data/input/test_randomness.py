"""What is drawn has the distribution that it should, and draws have nothing to do with each other. Seeds are fixed, so
a test passes always or never; its limit is one that good randomness would pass all but once in a million times.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from podium.data.input import counter_rng
from podium.data.input.augment import train_crops
from podium.data.input.order import Order
from podium.recipe.images import Data

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
    16 times its part. That of 0.1.0, of four rounds, kept a quarter of a bin too much."""
    pairs = PERMUTED ^ np.roll(PERMUTED, -distance, axis=1)
    for half in (pairs >> 6, pairs & 63):
        counts = np.bincount(half.ravel() >> 2, minlength=16)
        assert np.abs(counts / counts.mean() - 1).max() < 0.04


def shuffles(size, count):
    """Of `count` keys: int64 [count, size]."""
    keys = counter_rng.key(2, np.arange(count), 1)
    index = np.tile(np.arange(size), count)
    return counter_rng.permute(index, np.full(index.size, size), np.repeat(keys, size)).reshape(count, size)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_few_images_are_shuffled_in_every_way_alike(size):
    drawn = shuffles(size, 30 * math.factorial(size) + 1000)
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == math.factorial(size)
    assert_uniform(counts)


@pytest.mark.parametrize("size", [7, 8, 9, 12, 16, 17, 25, 48])
def test_two_images_of_a_small_share_land_on_any_two_places(size):
    drawn = shuffles(size, 20 * size**2)
    for first, second in ((0, 1), (0, size - 1), (size // 2, size // 2 + 1)):
        counts = np.bincount(drawn[:, first] * size + drawn[:, second], minlength=size**2).reshape(size, size)
        assert_uniform(counts[~np.eye(size, dtype=bool)])


@pytest.mark.parametrize("size", [4, 9, 15, 16, 20, 25, 64, 256])
def test_half_of_all_shuffles_are_odd(size):
    """Every round of a network on a power of two is even, and so was every shuffle of 0.1.0 of 16, 64 or 256 images.
    So is every round on the square of an odd number."""
    drawn = shuffles(size, 400)
    first, second = np.triu_indices(size, 1)
    odd = (drawn[:, first] > drawn[:, second]).sum(axis=1) % 2
    assert abs(odd.mean() - 0.5) < SIGMAS * 0.5 / np.sqrt(odd.size)


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
