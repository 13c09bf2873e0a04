"""The recipes of today run: every option that they set, on small images and a network that compiles in a second."""

import pytest
from flax import nnx
from tests.recipe.todays import TODAY
from tests.support.small_runs import Heard

from podium import build_norm
from podium.recipe.reading import load_recipe
from podium.report import events
from podium.train.run import train_recipe
from podium.train.setup import Own

pytestmark = pytest.mark.slow


def tiny_network(recipe):
    """Of the recipe's norm and with its dropping of whole blocks."""
    norm, rate = build_norm(recipe.model), recipe.model.stochastic_depth

    class Tiny(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(3, 8, (3, 3), 4, use_bias=False, rngs=rngs)
            self.norm = norm(8, rngs=rngs)
            self.depth = nnx.Dropout(rate, broadcast_dims=(1, 2, 3), rngs=rngs)
            self.classifier = nnx.Linear(8, 3, rngs=rngs)

        def __call__(self, x):
            x = self.conv(x)
            return self.classifier((x + self.depth(nnx.relu(self.norm(x)))).mean((1, 2)))

    return Tiny


@pytest.mark.parametrize("name", TODAY)
def test_a_recipe_of_today_trains(name, small_data, tmp_path):
    sizes = ["data.early_sizes=[16]"] if name.endswith("-epochs") else []
    recipe = load_recipe(name, [
        "epochs=1", "schedule.warmup_epochs=0.5", "batch_global=16", "torus=1x2", "model.norm_span=8",
        "data.image_size=24", "data.eval_size=32", "steps_per_dispatch=1", "data.train_images=96", *sizes,
    ])  # fmt: skip
    heard = Heard()
    summary = train_recipe(recipe, small_data, tmp_path / "run", own=Own(tiny_network(recipe)), listener=heard)
    assert summary.steps == 6
    assert [recipe.size_at(step) for step in range(6)] == ([16] * 5 + [24] if sizes else [24] * 6)
    (evaluated,) = heard.of(events.Evaluated)
    assert evaluated.images == 22
