"""A run of seconds for four processes: 48 steps, a checkpoint every other step."""

from pathlib import Path

from tests.support.processes import RECIPE

_CHANGES = (
    "epochs=8", "evaluate_every_epochs=8", "torus=2x2", "reduce=xla", "max_lost_steps=8", "optimizer.learning_rate=0.2",
)  # fmt: skip


def argument_list(folder: Path, data: Path) -> list[str]:
    """With the recipe's file in `folder`."""
    recipe = folder / "small.toml"
    recipe.write_text(RECIPE)
    return ["--recipe", str(recipe), "--data", str(data), *(part for c in _CHANGES for part in ("--set", c))]
