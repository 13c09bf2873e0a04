"""A run of seconds for four processes: 48 steps, a checkpoint every other step."""

from pathlib import Path

RECIPE = """
epochs = 8
batch_global = 16
torus = "2x2"
reduce = "xla"
log_every_steps = 1
evaluate_every_epochs = 8
max_lost_steps = 8

[data]
image_size = 16
eval_share = 1.0

[model]
name = "resnet8"
stem = "conv3"
norm_span = 16

[optimizer]
name = "lars"
learning_rate = 0.2
trust = 0.02

[schedule]
decay = "cosine"
warmup_epochs = 0.5
"""


def argument_list(recipe: Path, data: Path) -> list[str]:
    return ["--recipe", str(recipe), "--data", str(data)]
