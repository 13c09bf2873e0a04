from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.data.input import counter_rng
from podium.data.input.order import Order, evaluation_batch, evaluation_batches, evaluation_share


@given(images=st.integers(1, 200), batch=st.integers(1, 120), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_every_epoch_visits_every_image_exactly_once(images, batch, seed):
    order, steps = Order(images, batch, seed), 3 * images // batch + 2
    visits: Counter[tuple[int, int]] = Counter()
    for step in range(steps):
        samples, epochs = order.batch(step)
        visits.update(zip(epochs.tolist(), samples.tolist(), strict=True))
    assert set(visits.values()) == {1}
    for epoch in range(steps * batch // images - 1):
        assert {sample for e, sample in visits if e == epoch} == set(range(images))


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize(("images", "batch"), [(1000, 96), (1003, 48), (97, 240)])
def test_a_batch_is_the_same_at_every_host_count_and_hosts_stay_in_their_share(hosts, images, batch):
    order = Order(images, batch, seed=3)
    parts = np.array_split(np.arange(batch), hosts)
    for step in (0, 1, 7, 1000):
        whole = order.batch(step)
        for rows in parts:
            samples, epochs = order.batch(step, rows)
            np.testing.assert_array_equal(samples, whole[0][rows])
            np.testing.assert_array_equal(epochs, whole[1][rows])
            share = order.share(rows)
            assert all(int(sample) in share for sample in samples)


def test_hosts_read_only_their_share():
    order = Order(1_281_167, 4096, seed=0)
    for rows in np.array_split(np.arange(4096), 16):
        assert len(order.share(rows)) <= 1_281_167 // 16 + 4


def test_epochs_and_seeds_have_orders_of_their_own():
    first, second, other_seed = (Order(512, 64, seed).batch(step)[0] for seed, step in ((0, 0), (0, 8), (1, 0)))
    assert (first != second).mean() > 0.5
    assert (first != other_seed).mean() > 0.5


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**40))
@settings(deadline=None)
def test_permute_is_a_bijection(size, seed):
    image = counter_rng.permute(np.arange(size), np.full(size, size), np.full(size, seed))
    assert sorted(image) == list(range(size))


def test_mix_is_splitmix64():
    # The first outputs of the reference implementation seeded with 0 (Vigna's splitmix64.c).
    state = np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [hex(x) for x in counter_rng.mix(state).tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_uniform_draws_are_uniform_and_independent_of_the_batch():
    keys = counter_rng.key(0, 1, np.arange(20_000))
    draws = counter_rng.uniform(keys, 0, 2)
    assert abs(draws.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.02
    np.testing.assert_array_equal(draws[5:9], counter_rng.uniform(keys[5:9], 0, 2))


@given(images=st.integers(1, 300), batch=st.integers(1, 64))
def test_evaluation_visits_every_image_once_and_pads(images, batch):
    rows = np.arange(batch)
    seen = np.concatenate(
        [evaluation_batch(images, batch, i, rows=rows) for i in range(evaluation_batches(images, batch))]
    )
    assert seen[seen >= 0].tolist() == list(range(images))
    assert (seen[images:] == -1).all()


@given(images=st.integers(1, 300), batch=st.integers(1, 64), hosts=st.integers(1, 8))
def test_hosts_keep_each_image_of_an_evaluation_once(images, batch, hosts):
    rows = [part for part in np.array_split(np.arange(batch), hosts) if part.size]
    shares = [evaluation_share(images, batch, part) for part in rows]
    assert sum(map(len, shares)) == images
    assert all(sum(sample in share for share in shares) == 1 for sample in range(images))


@pytest.mark.parametrize(("batch", "shards"), [(96, 32), (128, 128), (900, 4), (4096, 64)])
def test_the_order_of_0_1_0_stays(batch, shards):
    """As 0.1.0 had it: powers of two alone, and no more shares than images."""
    order = Order(100, batch, 0, version="v1")
    assert order.virtual_shards == min(shards, 64)


def test_a_run_of_0_1_0_sees_the_images_that_it_would_have_seen():
    """Samples of 0.1.0 itself."""
    assert Order(77, 24, 1, version="v1").batch(2)[0].tolist() == [
        *(0, 3, 7, 18, 15, 9, 25, 23, 20, 33, 34, 32, 39, 40, 45, 53, 49, 54, 62, 61, 66, 67, 68, 69)
    ]
    assert Order(1000, 64, 3, version="v1").batch(5)[0][:8].tolist() == [11, 26, 39, 58, 70, 91, 96, 110]
    one_share = [int(Order(100, 1, 5, version="v1").batch(step)[0][0]) for step in range(12)]
    assert one_share == [22, 97, 92, 63, 6, 73, 54, 45, 34, 62, 0, 14]


def test_the_shuffle_of_share_i_says_nothing_of_the_crop_of_image_i():
    """Of 0.1.0, one number decided both."""
    old, new = (Order(100, 1, 5, version=version) for version in ("v1", "v2"))
    crop_key = np.broadcast_to(counter_rng.key(5, 0, 0), 100)
    index, size = np.arange(100), np.full(100, 100)
    drawn = [np.array([order.batch(step)[0][0] for step in range(100)]) for order in (old, new)]
    np.testing.assert_array_equal(drawn[0], counter_rng.permute(index, size, crop_key, version="v1"))
    assert (drawn[1] != counter_rng.permute(index, size, crop_key)).mean() > 0.9
