"""Counted work: by hand for a small network, the same whoever computes, on any number of chips, in any dispatch."""

import jax
import pytest

from podium.mesh import recipe_mesh
from podium.models import native
from podium.models.pooled import POOLED
from podium.recipe.reading import load_recipe
from podium.step.programs import batch_shapes, build_step
from podium.step.work import flops

SMALL = ("model.name=resnet7-narrow", "data.image_size=16", "batch_global=8", "model.norm_span=8", "model.classes=10")


def step_flops(*changes):
    recipe = load_recipe("cifar10-sgd", [*SMALL, *changes])
    step = build_step(recipe, recipe_mesh(recipe))
    batch = batch_shapes(recipe, step, recipe.steps_per_dispatch)
    traced = step.train.trace(jax.eval_shape(step.init), batch)
    return flops(traced.jaxpr.jaxpr) / recipe.steps_per_dispatch


def by_hand(examples=8):
    """2 FLOPs a multiply-add, three times for what learns: forward, for the images and for the kernel."""
    channels, side, total = 24, 15, 15 * 15 * 2 * 2 * 3 * 24  # fixed filters: forward alone
    for width in POOLED["resnet7-narrow"].widths:
        total += 3 * side**2 * 9 * channels * width
        side //= 2
        total += 3 * side**2 * 9 * width * width
        channels = width
    return 2.0 * examples * (total + 3 * channels * 10)


@pytest.mark.skipif(bool(native.missing), reason="no native library")
def test_native_convolutions_count_as_those_of_xla(monkeypatch):
    assert step_flops() == by_hand()
    monkeypatch.setenv("PODIUM_CONVOLVE", "xla")
    assert step_flops() == by_hand()


@pytest.mark.parametrize("change", ["torus=2x2", "steps_per_dispatch=3", "accumulate=2"])
def test_chips_dispatches_and_parts_change_nothing(change):
    assert step_flops(change, "model.norm_span=2") == by_hand()


def test_what_muon_multiplies_counts_too():
    extra = step_flops('optimizer={name = "muon", learning_rate = 0.1, iterations = 2}') - by_hand()
    convolutions = [(24, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64)]
    short = [(min(9 * a, b), max(9 * a, b)) for a, b in convolutions]
    assert extra == 2 * sum(2 * (2 * s * s * w + s**3) for s, w in short)
