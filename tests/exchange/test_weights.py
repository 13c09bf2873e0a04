"""Weights of torchvision's kind: the logits of a plain NumPy ResNet, and one clear line for what does not fit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file
from tests.support.reference_resnet import logits, random_tensors

from podium import models
from podium.errors import UserError
from podium.exchange.names import leaves_by_name, torch_tensors
from podium.exchange.stem import fold_stem, unfold_stem
from podium.exchange.weights import Weights, choose_tensors, read_weights
from podium.recipe.schema import Model

CLASSES = tuple("abcdefghij")


def network(name="resnet18", **settings):
    return Model(norm_span=1, name=name, classes=len(CLASSES), **settings)


def built(model, abstract=True):
    make = lambda: models.build_model(model, len(CLASSES), jnp.dtype(np.float32), rngs=nnx.Rngs(0))  # noqa: E731
    return nnx.eval_shape(make) if abstract else make()


@functools.cache
def shapes(model):
    return leaves_by_name(*(nnx.state(built(model), kind) for kind in (nnx.Param, nnx.BatchStat)))


def our_logits(model, tensors, images):
    """Of normalised [n, 3, rows, columns] images."""
    chosen = choose_tensors(Weights("random", "", tensors), model, shapes(model), classes=CLASSES)
    network = built(model)
    graph, params, stats = nnx.graphdef(network), nnx.state(network, nnx.Param), nnx.state(network, nnx.BatchStat)
    whole = nnx.merge(graph, chosen.place(params), chosen.place(stats))
    whole.eval()
    return np.asarray(jax.jit(lambda x: whole(x))(images.transpose(0, 2, 3, 1)))


@pytest.mark.parametrize(("name", "size"), [("resnet18", 64), ("resnet18", 61), ("resnet50", 64)])
def test_logits_are_those_of_a_resnet_written_from_torchvision_s_names(name, size):
    tensors, images = random_tensors(name), np.random.default_rng(1).normal(size=(2, 3, size, size)).astype(np.float32)
    expected = logits(name, tensors, images)
    assert expected.std() > 0.1
    np.testing.assert_allclose(our_logits(network(name), tensors, images), expected, atol=1e-4)


def test_seven_by_seven_kernels_fold_into_the_stem_that_folds_pixels():
    tensors, images = (
        random_tensors("resnet18"),
        np.random.default_rng(1).normal(size=(2, 3, 64, 64)).astype(np.float32),
    )
    folded = our_logits(network(stem="space_to_depth"), tensors, images)
    np.testing.assert_allclose(folded, logits("resnet18", tensors, images), atol=1e-4)
    seven = tensors["conv1.weight"]
    np.testing.assert_array_equal(unfold_stem(fold_stem(seven, "space_to_depth"))[:, :, 1:, 1:], seven)


@pytest.mark.parametrize("name", ["resnet34", "resnet152"])
def test_every_depth_has_exactly_torchvision_s_tensors(name):
    model, theirs = network(name), random_tensors(name)
    empty = {key: np.zeros(leaf.shape, np.float32) for key, leaf in shapes(model).items()}
    ours = torch_tensors(model, empty)
    assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in theirs.items()}


def test_a_classifier_for_the_same_classes_is_kept_and_any_other_is_new():
    tensors, model = random_tensors("resnet18"), network()
    for classes, kept in [(None, True), (CLASSES, True), (CLASSES[::-1], False), (CLASSES[:3], False)]:
        chosen = choose_tensors(Weights("w", "", tensors, classes), model, shapes(model), classes=CLASSES)
        assert chosen.classifier_kept == kept
        assert ("fc.weight" in chosen.tensors) == kept
    thousand = random_tensors("resnet18", classes=1000)
    assert not choose_tensors(Weights("w", "", thousand), model, shapes(model), classes=CLASSES).classifier_kept


def without(key):
    def change(tensors):
        del tensors[key]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("bn1.running_var"), "w does not fit model.name=resnet18: bn1.running_var is missing; give weights of"),
        (lambda t: t.update(extra=np.ones(1)), "extra is not known; give weights of the same network"),
        (
            lambda t: t.update({"layer1.0.conv1.weight": np.ones((64, 64, 1, 1))}),
            r"layer1.0.conv1.weight is \[64, 64, 1, 1\] and should be \[64, 64, 3, 3\];",
        ),
        (
            lambda t: (t.clear(), t.update(random_tensors("resnet34"))),
            "it is a resnet34: use --set model.name=resnet34",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, message):
    tensors = random_tensors("resnet18")
    change(tensors)
    with pytest.raises(UserError, match=message):
        choose_tensors(Weights("w", "", tensors), network(), shapes(network()), classes=CLASSES)


def test_weights_that_were_trained_with_other_padding_are_refused():
    weights = Weights("w", "", random_tensors("resnet18"), padding="same")
    with pytest.raises(UserError, match=r"use --set model\.padding=same"):
        choose_tensors(weights, network(), shapes(network()), classes=CLASSES)
    choose_tensors(weights, network(padding="same"), shapes(network()), classes=CLASSES)


def test_files_are_read_with_what_stands_beside_them(tmp_path):
    tensors = {"fc.bias": np.ones(2, np.float16), "bn1.num_batches_tracked": np.array(3)}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"pretrained_cfg": {"label_names": ["x", "y"], "mean": [0.5, 0.5, 0.5]}}')
    for path in (tmp_path, tmp_path / "model.safetensors"):
        weights = read_weights(path)
        assert {key: value.dtype for key, value in weights.tensors.items()} == {"fc.bias": np.float32}
        assert (weights.classes, weights.mean, weights.std) == (("x", "y"), (0.5, 0.5, 0.5), None)


def test_files_that_hold_no_weights(tmp_path):
    (tmp_path / "cut.safetensors").write_bytes(b"\x08\x00\x00")
    (tmp_path / "net.pth").touch()
    for name, message in [
        ("absent.safetensors", "holds no weights; give a .safetensors file, a folder with model.safetensors, or a run"),
        ("cut.safetensors", "is not a whole safetensors file"),
        ("net.pth", "is pickled, and reading it could run code; convert it"),
    ]:
        with pytest.raises(UserError, match=message):
            read_weights(tmp_path / name)
