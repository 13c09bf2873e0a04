"""Exports of a trained run: each read by an independent reader (NumPy, onnxruntime, a process without Podium), and
compared with what the run itself says about real images."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from flax import nnx
from safetensors.numpy import load_file
from tests.exchange.test_weights import built, network
from tests.support.reference_resnet import logits, random_tensors
from tests.support.small_runs import small_recipe

from podium.cli.arguments.export import Export
from podium.cli.export import export
from podium.errors import UserError
from podium.exchange import export as exporting
from podium.exchange import onnx_graph
from podium.exchange.card import About, card, not_torchvision
from podium.exchange.names import leaves_by_name, torch_tensors
from podium.exchange.onnx_graph import build_onnx
from podium.models.batch_norm import DistributedBatchNorm
from podium.train.run import train_recipe
from podium.train.trained_model import open_run

SIZE = 16


@pytest.fixture(scope="module")
def run(small_data, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "run"
    train_recipe(small_recipe(), small_data, directory)
    return directory


@pytest.fixture(scope="module")
def expected(run):
    """Validation images, and the run's probabilities of each class."""
    trained = open_run(run)
    images = trained.validation_pixels(6)
    return images, np.asarray(trained.step.predict(trained.state, images))


def softmax(x):
    return np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)


def normalised(images, run):
    data = open_run(run).recipe.data
    return ((images / 255 - data.mean) / data.std).transpose(0, 3, 1, 2).astype(np.float32)


@pytest.mark.slow
def test_safetensors_are_what_torchvision_has(run, expected, tmp_path):
    told = export(Export(run=run, out=tmp_path / "out"))
    assert told["difference"] <= 1e-6
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    counters = {key for key in tensors if key.endswith("num_batches_tracked")}
    assert {key.replace("num_batches_tracked", "running_mean") for key in counters} <= set(tensors)
    assert set(tensors) - counters == set(random_tensors("resnet8"))
    images, probabilities = expected
    np.testing.assert_allclose(softmax(logits("resnet8", tensors, normalised(images, run))), probabilities, atol=1e-4)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architecture"] == "resnet8"
    assert config["pretrained_cfg"]["label_names"] == ["red", "green", "blue"]
    assert config["podium"]["accuracy"] is not None
    assert "cannot load it: they have no resnet8" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(UserError, match="is already there"):
        export(Export(run=run, out=tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("input", ["pixels", "normalised"])
def test_onnx_gives_the_same_in_batches_of_any_size(run, expected, tmp_path, fold, input):
    export(Export(run=run, out=tmp_path / "out", format="onnx", fold_norms=fold, input=input))
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    kinds = [node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node]
    assert ("BatchNormalization" in kinds) != fold
    images, probabilities = expected
    fed = images if input == "pixels" else normalised(images, run)
    for some in (slice(0, 1), slice(0, 6)):
        np.testing.assert_allclose(softmax(session.run(None, {"images": fed[some]})[0]), probabilities[some], atol=1e-4)


@pytest.mark.slow
def test_stablehlo_runs_where_there_is_no_podium(run, expected, tmp_path):
    export(Export(run=run, out=tmp_path / "out", format="stablehlo"))
    images, probabilities = expected
    np.save(tmp_path / "images.npy", images)
    code = """
import sys, numpy, jax.export
from safetensors.numpy import load_file
exported = jax.export.deserialize(open("out/model.stablehlo", "rb").read())
logits = exported.call(load_file("out/model.safetensors"), numpy.load("images.npy"))
numpy.save("logits.npy", logits)
assert not {"podium", "flax"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    np.testing.assert_allclose(softmax(np.load(tmp_path / "logits.npy")), probabilities, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("resnet8", {"stem": "conv3", "blur": True}),
        ("resnet8", {"stem": "conv7", "padding": "same"}),
        ("resnet8", {"stem": "space_to_depth"}),
        ("resnet8", {"stem": "space_to_depth", "padding": "same"}),
        ("resnet8", {"stem": "fold3"}),
        ("resnet7-narrow", {"stem": "patches"}),
        ("plain7-wide", {"stem": "patches"}),
    ],
)
def test_every_network_has_an_onnx_graph_that_computes_the_same(name, settings):
    """With random numbers everywhere, folded and not."""
    model = network(name, **settings)
    recipe = small_recipe(model={"name": name, **settings, "classes": 10, "norm_span": 1})
    tensors, expected, images = random_network(model, built(model, abstract=False), np.random.default_rng(0))
    assert 0.01 < expected.std() < 100
    for folds in (False, True):
        graph = build_onnx(recipe, tensors, input="normalised", folds=folds, about={})
        session = onnxruntime.InferenceSession(graph.SerializeToString())
        np.testing.assert_allclose(session.run(None, {"images": images})[0], expected, atol=1e-4)


def random_network(model, whole, rng):
    for _, part in nnx.iter_modules(whole):
        if isinstance(part, DistributedBatchNorm):
            for variable in (part.scale, part.bias, part.mean, part.var):
                variable[...] = variable[...] * 0.5 + rng.uniform(0.1, 0.5, variable.shape)
    whole.eval()
    images = rng.normal(size=(3, 3, SIZE, SIZE)).astype(np.float32)
    leaves = leaves_by_name(nnx.state(whole, nnx.Param), nnx.state(whole, nnx.BatchStat))
    return torch_tensors(model, leaves), np.asarray(whole(images.transpose(0, 2, 3, 1))), images


@pytest.mark.slow
def test_a_file_that_computes_something_else_is_not_kept(run, tmp_path, monkeypatch):
    forgetful = lambda graph, recipe: graph.node("Transpose", graph.node("Cast", "images", to=1), perm=[0, 3, 1, 2])  # noqa: E731
    monkeypatch.setattr(onnx_graph, "_normalised", forgetful)
    with pytest.raises(RuntimeError, match="nothing was kept"):
        export(Export(run=run, out=tmp_path / "out", format="onnx"))
    assert list(tmp_path.iterdir()) == []


def test_options_that_do_not_fit_the_format():
    for options in ({"fold_norms": True}, {"input": "normalised"}):
        with pytest.raises(UserError, match="is for --format onnx"):
            Export(run=Path(), out=Path("out"), format="stablehlo", **options).check()


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({"name": "resnet50"}, None),
        ({"name": "resnet8"}, "no resnet8"),
        ({"name": "resnet50", "stem": "space_to_depth"}, "conv7"),
        ({"name": "resnet50", "padding": "same"}, "symmetrically"),
        ({"name": "resnet50", "norm_epsilon": 1e-3}, "adds 1e-05"),
    ],
)
def test_what_torchvision_cannot_load_is_said(model, why):
    found = not_torchvision(small_recipe(model={"norm_span": 8, **model}))
    assert (found is None) if why is None else (why in str(found))


def test_the_card_has_code_for_whoever_can_load_it():
    recipe = small_recipe(model={"norm_span": 8, "name": "resnet18"})
    about = About("run", 10, recipe, ("a", "b"), 0.5)
    assert "from torchvision.models import resnet18" in exporting._use(about, exporting.Options())
    text = card(about, "safetensors", "code")
    assert text.startswith("---\nlibrary_name: timm\n")
    assert "Top-1 accuracy on its validation images: 50.00%." in text
    assert exporting.TOLERANCE == 1e-4
