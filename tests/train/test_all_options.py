"""A run with every option of today's training on: killed and resumed to the same bits, and what its answers are."""

import json

import jax
import numpy as np
import pytest
from tests.support.small_runs import At, small_recipe

from podium.report.history import read_history
from podium.train.checkpoint import Checkpoints
from podium.train.run import train_recipe
from podium.train.trained_model import open_run

pytestmark = pytest.mark.slow

OPTIONS = {
    "epochs": 2, "average_decay": 0.5, "accumulate": 2, "batch_global": 32, "evaluate_flips": True, "torus": "1x2",
    "label_smoothing": 0.1, "max_lost_steps": 2, "evaluate_every_epochs": 1,
    "loss": "binary", "target_threshold": 0.2,
    "data": {
        "image_size": 24, "early_sizes": [16], "early_epochs": [1], "eval_size": 32, "min_area": 0.5,
        "flip_order": "alternating", "colour_jitter": 0.2, "balance": "sampling",
    },
    "augment": {"policy": "random", "erasing": 0.5, "mixup": 0.4, "cutmix": 1.0},
    "model": {
        "name": "resnet8", "stem": "conv7", "norm_span": 8, "dropout": 0.2, "stochastic_depth": 0.3, "blur": True,
    },
    "optimizer": {"name": "lamb", "learning_rate": 0.01, "clip_norm": 1.0},
    "schedule": {"decay": "cosine", "warmup_epochs": 0.5},
}  # fmt: skip


class Killed(Exception):
    pass


def kill():
    raise Killed


@pytest.fixture(scope="module")
def whole(small_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    return run, train_recipe(small_recipe(**OPTIONS), small_data, run)


def test_a_killed_run_resumes_to_the_same_bits(whole, small_data, tmp_path):
    run, summary = whole
    with pytest.raises(Killed):
        train_recipe(small_recipe(**OPTIONS), small_data, tmp_path / "run", listener=At(4, kill))
    resumed = train_recipe(small_recipe(**OPTIONS), small_data, tmp_path / "run")
    assert resumed.weights_hash == summary.weights_hash
    with Checkpoints(run) as one, Checkpoints(tmp_path / "run") as other:
        saved = [c.leaves(summary.steps) for c in (one, other)]
    assert any(name[0] == "averaged" for name in saved[0])
    assert saved[0].keys() == saved[1].keys()
    for name, leaf in saved[0].items():
        np.testing.assert_array_equal(leaf, saved[1][name], err_msg=str(name))


def test_answers_are_of_the_average_unless_the_weights_themselves_are_asked_for(whole):
    run, summary = whole
    with Checkpoints(run) as checkpoints:
        saved = checkpoints.leaves(summary.steps)
    evaluation = read_history(run).evaluations[-1]
    for raw_weights, part, figure in ((False, ("averaged", "params"), "top1"), (True, ("params",), "raw_top1")):
        trained = open_run(run, raw_weights=raw_weights)
        expected = [leaf for name, leaf in sorted(saved.items()) if name[: len(part)] == part]
        found = jax.tree.leaves(trained.state.params)
        assert sum(float(np.sum(leaf)) for leaf in expected) == pytest.approx(sum(float(x.sum()) for x in found))
        assert trained.evaluate().top1 == evaluation[figure]
    assert summary.accuracy == evaluation["top1"]
    smaller = open_run(run, size=16)
    assert smaller.validation_pixels(2).shape == (2, 16, 16, 3)
    assert smaller.evaluate().loss != evaluation["loss"]
    assert json.loads((run / "summary.json").read_text())["accuracy"] == evaluation["top1"]
