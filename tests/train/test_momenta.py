"""A checkpoint's momenta are taken over by the rule that made them, and by no other: LARS has two that differ in what a
momentum means, by a factor of the learning rate and the trust."""

import pytest
from flax import nnx
from tests.support.small_runs import small_recipe

from podium import Limits, Own, train_recipe
from podium.report import events


class Crash(Exception):
    pass


class UntilSix(events.Listener):
    """Hears a run up to step 6, and crashes it there: a checkpoint of step 4 is left."""

    def __init__(self):
        self.notes, self.losses = [], {}

    def note(self, message):
        self.notes.append(message)

    def progress(self, event):
        self.losses[event.step] = event.metrics["loss"]
        if event.step == 6:
            raise Crash


class Linear(nnx.Module):
    def __init__(self, rngs):
        self.classifier = nnx.Linear(16 * 16 * 3, 3, rngs=rngs)

    def __call__(self, x):
        return self.classifier(x.reshape(len(x), -1))


def trained(data, run, variant, from_step=None):
    optimizer = {"name": "lars", "learning_rate": 1.0, "trust": 0.02, "variant": variant}
    recipe, heard = small_recipe(optimizer=optimizer), UntilSix()
    with pytest.raises(Crash):
        train_recipe(recipe, data, run, own=Own(Linear), listener=heard, limits=Limits(from_step=from_step))
    return heard


def test_a_variant_of_lars_does_not_read_the_others_momenta(small_data, tmp_path):
    run = tmp_path / "run"
    whole = trained(small_data, run, "tf")
    same, other = (trained(small_data, run, variant, from_step=4) for variant in ("tf", "scaled_momentum"))
    assert [any("momenta start at zero" in note for note in heard.notes) for heard in (same, other)] == [False, True]
    assert same.losses == {step: whole.losses[step] for step in (5, 6)}
    assert same.losses[5] == other.losses[5]  # of the same weights; what the momenta do shows a step later
    assert same.losses[6] != other.losses[6]
