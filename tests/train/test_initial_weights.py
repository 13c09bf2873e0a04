"""Runs that start from weights: another run's or a file's; the run remembers which."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.support.small_runs import Heard, small_recipe

from podium.cli.arguments.export import Export
from podium.cli.export import export
from podium.data.dataset.manifest import read_manifest, write_manifest
from podium.errors import UserError
from podium.train.initial_weights import open_weights
from podium.train.run import train_recipe

pytestmark = pytest.mark.slow
MODEL = {"name": "resnet8", "stem": "conv7", "norm_span": 8}


def frozen_recipe(**changes):
    schedule = {"decay": "cosine", "warmup_epochs": 0}
    return small_recipe(epochs=1, model={**MODEL, "freeze": "all but classifier"}, schedule=schedule, **changes)


@pytest.fixture(scope="module")
def first_run(small_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("first") / "run"
    train_recipe(small_recipe(), small_data, run)
    return run


def test_a_run_starts_from_another_and_again_from_the_same_until_it_has_a_checkpoint(first_run, small_data, tmp_path):
    heard, run = Heard(), tmp_path / "run"
    summary = train_recipe(frozen_recipe(), small_data, run, weights=first_run, listener=heard)
    assert any("its classifier too" in note for note in heard.of(str))
    before, after = open_weights(first_run).tensors, open_weights(run).tensors
    assert {name for name in before if not np.array_equal(before[name], after[name])} == {"fc.weight", "fc.bias"}
    assert json.loads((run / "run.json").read_text())["weights"]["source"] == str(first_run)
    shutil.rmtree(run / "checkpoints")  # as if it had been killed before the first was written
    (run / "summary.json").unlink()
    again = train_recipe(frozen_recipe(), small_data, run)
    assert again.weights_hash == summary.weights_hash
    (run / "summary.json").unlink()
    with pytest.raises(UserError, match=f"holds a different run .weights {first_run} → {run}"):
        train_recipe(frozen_recipe(), small_data, run, weights=run)


def test_an_export_for_other_classes_gets_a_new_classifier(first_run, small_data, tmp_path):
    export(Export(run=first_run, out=tmp_path / "out"))
    other = tmp_path / "other"
    shutil.copytree(small_data, other)
    splits = {name: list(shards) for name, shards in read_manifest(small_data).splits.items()}
    write_manifest(other, ["rot", "grün", "blau"], splits, plan="test")
    heard, run = Heard(), tmp_path / "run"
    train_recipe(frozen_recipe(), other, run, weights=tmp_path / "out", listener=heard)
    assert any("a new classifier for 3 classes" in note for note in heard.of(str))
    before, after = open_weights(first_run).tensors, open_weights(run).tensors
    np.testing.assert_array_equal(before["layer3.0.conv2.weight"], after["layer3.0.conv2.weight"])


def test_weights_that_do_not_fit_leave_no_run_behind(first_run, small_data, tmp_path):
    export(Export(run=first_run, out=tmp_path / "out"))
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    del tensors["layer2.0.bn1.bias"]
    save_file(tensors, tmp_path / "less.safetensors")
    with pytest.raises(UserError, match=r"layer2\.0\.bn1\.bias is missing"):
        train_recipe(frozen_recipe(), small_data, tmp_path / "run", weights=tmp_path / "less.safetensors")
    assert not (tmp_path / "run").exists()


def test_pixels_normalised_in_another_way_are_mentioned(first_run, small_data, tmp_path):
    heard, recipe = Heard(), frozen_recipe(data={"image_size": 16, "min_area": 0.5, "mean": [0.5, 0.5, 0.5]})
    train_recipe(recipe, small_data, tmp_path / "run", weights=first_run, listener=heard)
    assert any("--set data.mean=[0.485, 0.456, 0.406]" in note for note in heard.of(str))
