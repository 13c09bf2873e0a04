"""Mixup, CutMix and erasing as they are drawn: the distributions that were asked for, and nothing but (seed, epoch,
image) in them."""

import numpy as np
import pytest
from scipy import stats

from podium.data.input import counter_rng
from podium.data.input.mixing import erased, mixes
from podium.recipe.augmentation import Augment

N, SIZE = 20_000, 64
KEYS = counter_rng.key(3, np.zeros(N, int), np.arange(N))


def test_mixup_draws_from_the_beta_distribution():
    found = mixes(Augment(mixup=0.5), KEYS, SIZE)
    assert stats.kstest(found[:, 0], stats.beta(0.5, 0.5).cdf).pvalue > 0.01
    np.testing.assert_array_equal(found[:, 1:5], 0)
    np.testing.assert_array_equal(found[:, 5], found[:, 0])


def test_cutmix_draws_rectangles_whose_share_is_the_labels():
    found = mixes(Augment(cutmix=1.0), KEYS, SIZE)
    left, top, right, bottom = found[:, 1:5].T
    assert ((left >= 0) & (top >= 0) & (right <= SIZE) & (bottom <= SIZE)).all()
    np.testing.assert_array_equal(found[:, 0], 1)
    np.testing.assert_allclose(found[:, 5], 1 - (right - left) * (bottom - top) / SIZE**2, rtol=1e-6)
    inner = (left > 0) & (top > 0) & (right < SIZE) & (bottom < SIZE)
    assert ((right - left) == (bottom - top))[inner].all()
    # Its middle is anywhere, so that of the pixels in the middle of the image a quarter more than at a side are cut.
    assert np.mean((left <= 32) & (right > 32)) > np.mean(left == 0)


def test_with_both_each_image_gets_one_of_them_and_a_share_none():
    found = mixes(Augment(mixup=0.2, cutmix=1.0, mix_share=0.6), KEYS, SIZE)
    blended, cut = found[:, 0] < 1, found[:, 1:5].any(axis=1)
    assert not (blended & cut).any()
    assert np.mean(blended) == pytest.approx(0.3, abs=0.02)
    assert np.mean(cut) == pytest.approx(0.3, abs=0.02)
    np.testing.assert_array_equal(found[~(blended | cut)], [[1, 0, 0, 0, 0, 1]] * int((~(blended | cut)).sum()))


def test_erased_rectangles_have_the_areas_and_shapes_of_the_source():
    found = erased(Augment(erasing=0.4), KEYS, SIZE)
    left, top, right, bottom = found.T
    there = right > left
    assert np.mean(there) == pytest.approx(0.4, abs=0.02)
    area = ((right - left) * (bottom - top))[there] / SIZE**2
    assert (area > 0.015).all()
    assert (area < 0.35).all()
    assert area.mean() == pytest.approx(0.175, abs=0.02)
    assert ((left >= 0) & (right <= SIZE) & (top >= 0) & (bottom <= SIZE)).all()
    np.testing.assert_array_equal(found[~there], 0)


def test_a_draw_depends_on_its_own_key_alone():
    for draw, augment in ((mixes, Augment(mixup=0.3, cutmix=0.7)), (erased, Augment(erasing=0.5))):
        np.testing.assert_array_equal(draw(augment, KEYS[50:60], SIZE), draw(augment, KEYS, SIZE)[50:60])
        assert (draw(augment, KEYS, SIZE) != draw(augment, counter_rng.key(4, KEYS), SIZE)).any()
