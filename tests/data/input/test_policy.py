"""The policies' draws: each operation as often as the source says, strengths in its range, from an image's own key."""

import numpy as np
import pytest

from podium.data.decode.change import ONE, PLACE, Kind
from podium.data.input import counter_rng
from podium.data.input.policy import policy_operations
from podium.recipe.augmentation import Augment

N, SIZE = 6000, 224
KEYS = counter_rng.key(5, np.zeros(N, int), np.arange(N))
TRIVIAL, RANDOM = Augment(policy="trivial"), Augment(policy="random", magnitude=7)


def shares(operations):
    kinds, counts = np.unique(operations[..., 0], return_counts=True)
    return {Kind(int(kind)): count / operations[..., 0].size for kind, count in zip(kinds, counts, strict=True)}


def test_trivial_takes_one_of_fourteen_operations_at_any_strength():
    found = policy_operations(TRIVIAL, KEYS, SIZE)
    assert found.shape == (N, 1, 7)
    of = shares(found)
    assert of.pop(Kind.AFFINE) == pytest.approx(5 / 14, abs=0.02)
    assert Kind.INVERT not in of
    assert Kind.SOLARIZE_ADD not in of
    assert all(share == pytest.approx(1 / 14, abs=0.015) for share in of.values())
    factors = found[found[..., 0] == Kind.BRIGHTNESS][:, 1] / ONE
    assert factors.min() == pytest.approx(0.01, abs=0.001)
    assert factors.max() == pytest.approx(1.99, abs=0.001)
    assert len(np.unique(factors)) == 61  # 31 strengths, up and down
    moves = found[(found[..., 0] == Kind.AFFINE) & (found[..., 2] == 0) & (found[..., 1] == PLACE)]
    assert abs(moves[:, 3] / PLACE - 0.5).max() == pytest.approx(32, abs=0.01)
    assert set(np.unique(found[found[..., 0] == Kind.POSTERIZE][:, 1])) == set(range(2, 9))


def test_random_takes_several_of_fifteen_about_the_magnitude():
    found = policy_operations(RANDOM, KEYS, SIZE)
    assert found.shape == (N, 2, 7)
    of = shares(found)
    assert of.pop(Kind.NOTHING) == pytest.approx(0.5, abs=0.01)
    assert of.pop(Kind.AFFINE) == pytest.approx(5 / 30, abs=0.01)
    assert all(share == pytest.approx(1 / 30, abs=0.005) for share in of.values())
    factors = found[found[..., 0] == Kind.CONTRAST][:, 1] / ONE
    away = abs(factors - 1)
    assert away.mean() == pytest.approx(0.63, abs=0.01)
    assert away.std() == pytest.approx(0.045, abs=0.01)
    assert (factors > 1).mean() == pytest.approx(0.5, abs=0.1)


def test_a_draw_depends_on_its_own_key_alone_and_distances_on_the_size():
    for augment in (TRIVIAL, RANDOM):
        of_all = policy_operations(augment, KEYS[:200], SIZE)
        np.testing.assert_array_equal(policy_operations(augment, KEYS[70:80], SIZE), of_all[70:80])
        small = policy_operations(augment, KEYS[:200], SIZE // 2)
        np.testing.assert_array_equal(small[..., 0], of_all[..., 0])
        assert (small != of_all).any()


def test_a_turn_is_about_the_middle():
    found = policy_operations(Augment(policy="trivial"), KEYS, 65)[:, 0]
    turns = found[(found[:, 0] == Kind.AFFINE) & (found[:, 2] != 0) & (found[:, 4] != 0)].astype(np.int64)
    assert len(turns) > 100
    a, b, c, d, e, f = turns[:, 1:].T
    np.testing.assert_array_equal((a * 32 + b * 32 + c) >> 16, 32)
    np.testing.assert_array_equal((d * 32 + e * 32 + f) >> 16, 32)
