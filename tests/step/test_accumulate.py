"""Gradients of a batch in parts are those of the whole; flipped copies in evaluation; alternating flips."""

import jax
import numpy as np
import pytest
from tests.step.test_programs import BATCH, CLASSES, SIZE, programs, run, small_recipe

from podium.data.input.augment import train_crops
from podium.errors import UserError
from podium.recipe.images import Data

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (1, 2)])
def test_parts_of_a_batch_train_as_the_whole_does(rows, cols):
    losses, state = run(small_recipe(), 1, 1)
    in_parts, other = run(small_recipe(accumulate=2), rows, cols)
    np.testing.assert_allclose(in_parts, losses, rtol=2e-5)
    for a, b in zip(jax.tree.leaves(other), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


def test_parts_that_would_cut_a_span_are_refused():
    with pytest.raises(UserError, match="accumulate=4 cuts the 16 images of a chip into parts of 4"):
        run(small_recipe(accumulate=4), 1, 2)


def test_an_evaluation_with_flips_takes_the_mean_of_both_answers():
    plain, flipped = programs(small_recipe(), 1, 1), programs(small_recipe(evaluate_flips=True), 1, 1)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, BATCH).astype(np.int32)
    state = plain.init()
    logits = [np.log(np.asarray(plain.predict(state, x))) for x in (images, images[:, :, ::-1])]
    mean = np.exp((logits[0] + logits[1]) / 2)  # of logits up to a constant, which softmax does not see
    expected = mean / mean.sum(1, keepdims=True)
    np.testing.assert_allclose(flipped.predict(state, images), expected, rtol=1e-5)
    batch = jax.device_put({"image": images, "label": labels}, flipped.eval_batches)
    totals = flipped.evaluate(state, flipped.zero_totals(), batch)
    assert float(totals["loss"]) == pytest.approx(-np.log(expected[np.arange(BATCH), labels]).sum(), rel=1e-5)


def test_an_evaluation_with_shifts_counts_the_moved_answers_as_much_as_the_unmoved():
    plain, moved = programs(small_recipe(), 1, 1), programs(small_recipe(evaluate_shift=2, evaluate_flips=True), 1, 1)
    images = np.random.default_rng(0).integers(0, 256, (BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    rows = np.abs(np.arange(-2, SIZE + 2))
    rows = np.minimum(rows, 2 * (SIZE - 1) - rows)  # reflected at both ends
    up, down = (images[:, rows[at]][:, :, rows[at]] for at in (slice(0, SIZE), slice(4, SIZE + 4)))
    state, logits = plain.init(), 0.0
    for weight, image in ((0.5, images), (0.25, up), (0.25, down)):
        for view in (image, image[:, :, ::-1]):
            logits += weight / 2 * np.log(np.asarray(plain.predict(state, view)))
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(moved.predict(state, images), expected, rtol=1e-5)


def test_alternating_flips_show_both_sides_in_any_two_epochs():
    samples, sizes = np.arange(4000), np.full((4000, 2), 32)
    data = Data(crop="shifted", flip_order="alternating")
    flips = [train_crops(data, 3, np.full(4000, e), samples=samples, sizes=sizes).flips for e in range(3)]
    np.testing.assert_array_equal(flips[0] + flips[1], 1)
    np.testing.assert_array_equal(flips[0], flips[2])
    assert 0.45 < flips[0].mean() < 0.55
    np.testing.assert_array_equal(
        flips[0], train_crops(Data(crop="shifted"), 3, np.zeros(4000, int), samples=samples, sizes=sizes).flips
    )  # those of the first epoch are the random ones
    off = Data(crop="shifted", flip_order="alternating", flip=False)
    assert not train_crops(off, 3, np.zeros(4000, int), samples=samples, sizes=sizes).flips.any()
