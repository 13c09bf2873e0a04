"""Every shipped recipe says where it comes from, what it needs and what it reaches; those of today, their sources'
numbers."""

import re

import pytest

from podium.recipe.optimization import Lamb, Sgd
from podium.recipe.reading import load_recipe, recipe_text, shipped


@pytest.mark.parametrize("name", shipped())
def test_a_recipe_says_what_it_needs_and_what_it_reaches(name):
    head = recipe_text(name).partition("\n\n")[0]
    assert "podium train" in head
    assert re.search(r"Hardware: .*(GPU|TPU|CPU|accelerator)", head)
    assert "Expected: " in head
    assert "Source: " in head or not name.startswith("resnet50")


@pytest.mark.parametrize(("epochs", "grows_after"), [(16, 12), (32, 25), (88, 71)])
def test_the_sizes_of_ffcvs_recipes_are_those_of_its_ramp(epochs, grows_after):
    start, end = {16: (11, 13), 32: (23, 27), 88: (65, 76)}[epochs]
    r = load_recipe(f"resnet50-{epochs}-epochs").for_data(1000, 1_281_167, 50_000)
    assert isinstance(r.optimizer, Sgd)
    assert (r.batch_global, r.optimizer.learning_rate, r.data.evaluation_size, r.model.blur) == (4096, 1.7, 256, True)
    for epoch in range(epochs):
        ramp = 160 + 32 * min(1, max(0, (epoch - start) / (end - start)))
        assert r.data.sizes_from(epoch)[0] == (192 if ramp >= 176 else 160), epoch
    assert r.data.early_epochs == (grows_after,)


@pytest.mark.parametrize(
    ("name", "epochs", "rate", "decay", "sizes", "mixup", "depth"),
    [
        ("a1", 600, 5e-3, 0.01, (224, 224), 0.2, 0.05),
        ("a2", 300, 5e-3, 0.02, (224, 224), 0.1, 0.05),
        ("a3", 100, 8e-3, 0.02, (160, 224), 0.1, 0.0),
    ],
)
def test_the_procedures_of_resnet_strikes_back_have_its_numbers(*, name, epochs, rate, decay, sizes, mixup, depth):
    r = load_recipe(f"resnet50-{name}")
    assert isinstance(r.optimizer, Lamb)
    assert (r.epochs, r.batch_global, r.loss, r.data.eval_share) == (epochs, 2048, "binary", 0.95)
    assert (r.optimizer.learning_rate, r.optimizer.weight_decay, r.optimizer.clip_norm) == (rate, decay, 1.0)
    assert (r.data.image_size, r.data.evaluation_size) == sizes
    assert (r.augment.mixup, r.augment.cutmix, r.model.stochastic_depth) == (mixup, 1.0, depth)
    assert (r.augment.policy, r.augment.magnitude) == ("random", 6 if name == "a3" else 7)
    assert r.label_smoothing == (0.1 if name == "a1" else 0.0)
