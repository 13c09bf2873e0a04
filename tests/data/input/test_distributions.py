"""What `test_randomness` leaves: shares of an epoch are shuffled each in its own way, whatever stood side by side parts
in the next epoch, and crops have the areas, ratios and shifts that their distribution says. Seeds are fixed; a perfect
source of randomness would fail an assertion with a probability of one in a million (`RARE`).
"""

import itertools
from typing import Literal

import numpy as np
import pytest
from scipy import stats

from podium.data.input.augment import Crops, train_crops
from podium.data.input.order import Order
from podium.recipe.images import Data

RARE = 1e-6
MANY = 50_000
WIDTH, HEIGHT = 500, 375


def assert_uniform(values: np.ndarray, low: float, high: float, bins: int = 50) -> None:
    """Neither more uneven nor more even than chance makes them."""
    assert low <= values.min()
    assert values.max() <= high
    counts, _ = np.histogram(values, bins, (low, high))
    assert RARE < stats.chisquare(counts).pvalue < 1 - RARE


def assert_equally_often(values: np.ndarray, choices: int) -> None:
    """Whole numbers from 0 up to `choices`."""
    counts = np.bincount(values.astype(int), minlength=choices)
    assert len(counts) == choices
    assert RARE < stats.chisquare(counts).pvalue < 1 - RARE


def assert_independent(one: np.ndarray, other: np.ndarray, bins: int = 12) -> None:
    """By a table of both, each cut into parts of about equal size; two values are two parts."""

    def parts(values: np.ndarray) -> np.ndarray:
        borders = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1]))
        return np.unique(np.searchsorted(borders, values, "left"), return_inverse=True)[1]

    a, b = parts(one), parts(other)
    assert a.max() > 0
    assert b.max() > 0
    table = np.bincount(a * (b.max() + 1) + b, minlength=(a.max() + 1) * (b.max() + 1)).reshape(a.max() + 1, -1)
    assert stats.chi2_contingency(table, correction=False).pvalue > RARE


IMAGES, BATCH = 2**16, 64


def places(seed: int, epoch: int) -> np.ndarray:
    """The place of every image in its share's order of this epoch."""
    order = Order(IMAGES, BATCH, seed)
    per_epoch = IMAGES // BATCH
    placed = np.empty(IMAGES, int)
    for step in range(per_epoch):
        samples, epochs = order.batch(epoch * per_epoch + step)
        assert (epochs == epoch).all()
        placed[samples] = step
    return placed


@pytest.fixture(scope="module")
def first_epoch() -> np.ndarray:
    return places(0, 0)


def test_an_images_place_says_nothing_of_its_stored_place(first_epoch):
    stored = np.arange(IMAGES) % (IMAGES // BATCH)
    assert_independent(stored, first_epoch)
    assert_independent(first_epoch[:-1], first_epoch[1:])


@pytest.mark.parametrize(("seed", "epoch"), [(0, 1), (0, 2), (1, 0)])
def test_an_images_place_says_nothing_of_other_epochs_and_seeds(first_epoch, seed, epoch):
    other = places(seed, epoch)
    assert_independent(first_epoch, other)
    # Of two that stood side by side, as many do so again as chance has it: about two pairs a share.
    share = np.arange(IMAGES) // (IMAGES // BATCH)
    in_order = np.lexsort((first_epoch, share))
    inside = share[in_order][1:] == share[in_order][:-1]
    together = (np.abs(np.diff(other[in_order])) == 1) & inside
    assert RARE < stats.poisson(2 * BATCH).cdf(together.sum()) < 1 - RARE


def test_shares_are_shuffled_each_in_its_own_way(first_epoch):
    of_share = first_epoch.reshape(BATCH, -1)
    for one, other in itertools.pairwise(of_share):
        assert stats.spearmanr(one, other).pvalue > RARE
        assert stats.poisson(1).sf((one == other).sum()) > RARE


def drawn(crop: Literal["resized", "shifted"] = "resized") -> Crops:
    data = Data(crop=crop, min_area=0.08, shift_pixels=4, colour_jitter=0.4, flip=True)
    sizes = np.full((MANY, 2), (WIDTH, HEIGHT), np.int32)
    return train_crops(data, 0, np.zeros(MANY, int), samples=np.arange(MANY), sizes=sizes)


def test_areas_and_ratios_are_uniform_where_all_of_them_fit():
    """Up to 9/16 of this image (3:4 × 3:4) every ratio fits at the first try, so nothing is left out."""
    width, height = drawn().boxes.T[2:].astype(float)
    share, logarithm = width * height / (WIDTH * HEIGHT), np.log(width / height) / np.log(4 / 3)
    small = (share > 0.1) & (share < 0.5)
    assert small.sum() > MANY / 4
    assert_uniform(share[small], 0.1, 0.5, bins=8)
    inner = small & (np.abs(logarithm) < 0.9)
    assert_uniform(logarithm[inner], -0.9, 0.9, bins=8)
    assert_independent(share[inner], logarithm[inner], bins=6)


def test_shifts_are_equally_likely_in_both_directions():
    crops = drawn("shifted")
    shifts = crops.boxes.T[:2].astype(float)
    for shift in shifts:
        assert_equally_often(shift + 4, 9)
        for other in (crops.flips.astype(float), *crops.colours.T.astype(float)):
            assert_independent(shift, other)
    assert_independent(*shifts)


def test_neighbouring_images_are_drawn_apart():
    crops = drawn()
    for values in (*crops.boxes.T.astype(float), crops.flips.astype(float), *crops.colours.T.astype(float)):
        assert_independent(values[:-1], values[1:])
