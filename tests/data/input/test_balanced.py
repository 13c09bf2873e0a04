"""The balanced order: every class equally often, every image of a class before any is seen again, on any hosts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.data.dataset.shards import ImageSet
from podium.data.input.balanced import BalancedOrder
from podium.data.input.loader import TrainLoader, class_weights
from podium.recipe.reading import load_recipe


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(any), batch=st.integers(1, 12),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_classes_come_equally_often_and_images_once_before_again(counts, batch, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    order, present = BalancedOrder(labels, batch, seed), np.count_nonzero(counts)
    steps = -(-3 * len(labels) * present // batch)
    samples, epochs = order.batch(np.repeat(np.arange(steps), batch), np.tile(np.arange(batch), steps))
    whole = len(samples) // present * present
    of_turns = np.sort(labels[samples[:whole]].reshape(-1, present), axis=1)
    np.testing.assert_array_equal(of_turns, np.tile(np.flatnonzero(counts), (len(of_turns), 1)))
    for label, count in enumerate(counts):
        seen = samples[labels[samples] == label]
        rounds = seen[: len(seen) // count * count].reshape(-1, count) if count else np.zeros((0, 0), int)
        np.testing.assert_array_equal(
            np.sort(rounds, axis=1), np.tile(np.flatnonzero(labels == label), (len(rounds), 1))
        )
        np.testing.assert_array_equal(epochs[labels[samples] == label], np.arange(len(seen)) // max(1, count))


def test_hosts_together_draw_what_one_draws_alone():
    order = BalancedOrder(np.arange(100) % 7, 24, seed=1)
    samples, epochs = order.batch(5)
    for rows in (np.arange(0, 24, 2), np.arange(6, 18)):
        np.testing.assert_array_equal(order.batch(5, rows)[0], samples[rows])
        np.testing.assert_array_equal(order.batch(5, rows)[1], epochs[rows])
        assert len(order.share(rows)) == 100
    assert (order.batch(6)[0] != samples).any()
    assert (BalancedOrder(order.labels, 24, seed=2).batch(5)[0] != samples).any()


def test_weights_of_classes_make_all_count_alike_or_are_those_given():
    labels = np.array([0] * 6 + [1] * 3 + [3])
    recipe = load_recipe("demo", ["model.classes=4"])
    weights = class_weights(recipe, labels)
    np.testing.assert_allclose(weights[:2], [10 / 18, 10 / 9], rtol=1e-6)
    assert weights[labels].mean() == pytest.approx(1)
    given_ones = load_recipe("demo", ["class_weights=[1, 2.5, 1]"])
    assert class_weights(given_ones, labels).tolist() == [1, 2.5, 1]


@pytest.mark.parametrize("balance", ["loss", "sampling"])
def test_the_loader_balances(small_data, balance):
    recipe = load_recipe(
        "demo",
        ["batch_global=30", "model.norm_span=30", "data.image_size=8", f"data.balance={balance}", "data.cache=none"],
    )
    images = ImageSet.open(small_data, "train")
    loader = TrainLoader(images, recipe.for_data(3, len(images), 22), np.arange(30))
    batch = loader.new_batch()
    loader.fill(batch, 0)
    loader.close()
    if balance == "loss":
        weights = class_weights(loader.recipe, images.labels)
        np.testing.assert_array_equal(batch["weight"], weights[batch["label"]])
    else:
        assert np.bincount(batch["label"][0]).tolist() == [10, 10, 10]
