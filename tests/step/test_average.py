"""The moving average of weights and statistics: by its formula, on any chips, over a restart, and in evaluations."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tests.step.test_programs import BATCH, CLASSES, SIZE, batches, programs, small_recipe

pytestmark = pytest.mark.slow


def weights(state):
    return jax.tree.leaves(jax.device_get({"params": state.params, "stats": state.stats}))


@pytest.mark.parametrize("weight_update", ["replicated", "joined", "sharded", "flat"])
def test_the_average_follows_its_formula(weight_update):
    step = programs(small_recipe(average_decay=0.23, weight_update=weight_update, steps_per_dispatch=1), 1, 2)
    state = step.init()
    expected = weights(step.portable(state))
    for count, batch in enumerate(batches(step, count=3, steps=1), 1):
        state, _ = step.train(state, batch)
        decay = min(0.23, (1 + count) / (10 + count))  # 2/11, then 0.23
        now = weights(step.portable(state))
        expected = [decay * a + (1 - decay) * w for a, w in zip(expected, now, strict=True)]
    for a, b in zip(jax.tree.leaves(step.portable(state).averaged), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weight_update", ["joined", "sharded", "flat"])
def test_a_restart_changes_no_bit_of_the_average(weight_update):
    step = programs(small_recipe(average_decay=0.9, weight_update=weight_update), 1, 2)
    *before, last = batches(step, count=3)
    state = step.init()
    for batch in before:
        state, _ = step.train(state, batch)
    saved = jax.device_get(step.portable(state))
    ends = [step.train(start, last)[0] for start in (step.resumed(jax.device_put(saved, step.everywhere)), state)]
    for a, b in zip(*(jax.tree.leaves(step.portable(end)) for end in ends), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_without_an_average_begins_one_at_its_weights():
    with_average, without = programs(small_recipe(average_decay=0.9), 1, 1), programs(small_recipe(), 1, 1)
    state = with_average.resumed(without.portable(without.init()))
    for a, b in zip(jax.tree.leaves(state.averaged), weights(state), strict=True):
        np.testing.assert_array_equal(a, b)
    assert without.resumed(with_average.portable(state)).averaged is None


def test_answers_are_the_averages_and_the_weights_are_judged_beside():
    step, plain = programs(small_recipe(average_decay=0.9), 1, 1), programs(small_recipe(), 1, 1)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    batch = {"image": images, "label": rng.integers(0, CLASSES, BATCH).astype(np.int32)}
    other = programs(replace(small_recipe(), seed=5), 1, 1).init()
    state = replace(step.init(), averaged={"params": other.params, "stats": other.stats})
    totals = step.evaluate(state, step.zero_totals(), jax.device_put(batch, step.eval_batches))
    answers = [np.asarray(plain.predict(s, images)) for s in (other, plain.init())]
    right = [(answer.argmax(1) == batch["label"]).sum() for answer in answers]
    assert [int(totals["top1"]), int(totals["raw_top1"])] == right
    assert right[0] != right[1]  # or neither could be told from the other
    np.testing.assert_allclose(step.predict(state, images), answers[0], rtol=1e-6)
