"""Layers that learn at rates of their own: frozen ones keep every bit, and cost no backward pass; the classifier's rate
is a multiple; a sharded update does the same as a replicated one."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tests.support.small_runs import small_recipe

from podium.errors import UserError
from podium.exchange.names import leaves_by_name
from podium.mesh import build_mesh
from podium.models.freeze import check_freeze, is_frozen
from podium.recipe.schema import Model
from podium.recipe.torus import Shape, lay_out
from podium.step.layer_rates import rate_factors
from podium.step.programs import batch_shapes, build_step, parameter_shapes

BATCH, CLASSES = 16, 5


def recipe(freeze="none", freeze_norm="frozen layers", *, weight_update="replicated", **rates):
    table = {"freeze": freeze, "freeze_norm": freeze_norm, "name": "resnet7-narrow", "stem": "patches", "norm_span": 4}
    optimizer = {
        "name": "sgd", "learning_rate": 0.1, "momentum": 0.0, "nesterov": False, **rates,
    }  # fmt: skip
    made = small_recipe(
        model={**table, "classes": CLASSES}, optimizer=optimizer, weight_update=weight_update,
        schedule={"decay": "steps", "warmup_epochs": 0, "at_epochs": []},
    )  # fmt: skip
    return replace(made, data=replace(made.data, train_images=64))


def trained(r, chips=(1, 1)):
    """Tensors before and after one step, by name, and the work of the step."""
    shape = Shape(*chips)
    step = build_step(r, build_mesh(lay_out(shape, BATCH, 4), jax.devices()[: shape.chips]))
    rng = np.random.default_rng(0)
    batch = {
        "image": rng.integers(0, 256, (1, BATCH, 16, 16, 3), dtype=np.uint8),
        "label": rng.integers(0, CLASSES, (1, BATCH), dtype=np.int32),
    }
    state = step.init()
    start = step.portable(state)
    before = leaves_by_name(*jax.device_get((start.params, start.stats)))
    compiled = step.train.lower(state, batch_shapes(r, step, 1)).compile()
    after, _ = compiled(state, jax.device_put(batch, step.train_batches))
    portable = step.portable(after)
    tensors = leaves_by_name(*jax.device_get((portable.params, portable.stats)))
    return before, tensors, work(compiled)


def work(compiled):
    """In convolutions where they are native, which XLA does not count; otherwise in its floating-point operations."""
    return compiled.as_text().count('custom_call_target="podium_convolve') or compiled.cost_analysis()["flops"]


def changed(before, after):
    return {name for name in before if not np.array_equal(before[name], after[name])}


@pytest.mark.slow
def test_frozen_layers_keep_every_bit_and_cost_no_backward_pass():
    before, after, whole = trained(recipe())
    assert changed(before, after) == set(before)
    _, some, fewer = trained(recipe("stage 2", classifier_rate=10.0))
    learning = {name for name in before if name[0] == "classifier" or name[:2] == ("stages", "2")}
    assert changed(before, some) == learning
    assert fewer < 0.6 * whole
    moved = {name: tensors[name] - before[name] for tensors in (after,) for name in learning}
    np.testing.assert_allclose(
        some["classifier", "bias"] - before["classifier", "bias"], 10 * moved["classifier", "bias"], atol=0.02
    )
    for way in ("sharded", "joined"):
        start, on_four, _ = trained(recipe("stage 2", classifier_rate=10.0, weight_update=way), chips=(2, 2))
        assert changed(start, on_four) == learning
        for name in learning:
            np.testing.assert_allclose(on_four[name], some[name], rtol=1e-5, atol=2e-5)


@pytest.mark.slow
def test_batch_norm_is_frozen_or_not():
    statistics = lambda names: {name for name in names if name[-1] in ("mean", "var")}  # noqa: E731
    before, after, _ = trained(recipe("all but classifier", "none"))
    assert changed(before, after) == statistics(before) | {("classifier", "kernel"), ("classifier", "bias")}
    before, after, _ = trained(recipe("none", "all"))
    assert changed(before, after) == set(before) - statistics(before)


def test_biases_have_a_rate_of_their_own_and_frozen_ones_none():
    r = recipe("stage 1", bias_rate=64.0, classifier_rate=3.0)
    shapes = parameter_shapes(r, build_mesh(lay_out(Shape(1, 1), BATCH, 4), jax.devices()[:1]))
    factors = jax.tree.unflatten(jax.tree.structure(shapes), rate_factors(r, shapes) or ())
    of = {name: float(factor) for name, factor in leaves_by_name(factors, {}).items()}
    assert of["stages", "2", "widen_norm", "bias"] == 64
    assert of["stages", "2", "widen_norm", "scale"] == of["stages", "2", "widen", "kernel"] == 1
    assert of["stages", "0", "widen_norm", "bias"] == of["patch_bias",] == 0
    assert of["classifier", "bias"] == of["classifier", "kernel"] == 3


@pytest.mark.parametrize(
    ("name", "stem", "freeze", "frozen"),
    [
        ("resnet18", "conv7", "none", []),
        ("resnet18", "conv7", "stem", ["first", "first_norm"]),
        ("resnet18", "conv7", "stage 2", ["first", "first_norm", *range(4)]),
        ("resnet50", "conv7", "stage 3", ["first", "first_norm", *range(13)]),
        ("resnet50", "conv7", "all but classifier", ["first", "first_norm", *range(16)]),
        ("resnet7", "patches", "stem", ["patch_bias"]),
    ],
)
def test_layers_are_frozen_from_the_image_on(name, stem, freeze, frozen):
    parts = ["first", "first_norm", "patch_bias", "classifier", *range(16)]
    if name == "resnet7":
        parts = ["patch_bias", ("stages", 0), "classifier"]
    paths = {
        part: ("blocks", part) if isinstance(part, int) else part if isinstance(part, tuple) else (part,)
        for part in parts
    }
    predicate = is_frozen(Model(norm_span=1, name=name, stem=stem, freeze=freeze))
    found = [part for part, path in paths.items() if predicate(path)]
    assert set(found) - {"patch_bias"} == set(frozen) - {"patch_bias"}


def test_layers_that_there_are_not():
    with pytest.raises(UserError, match="'stage 5' is none of resnet18's layers; use one of none, stem, stage 1, "):
        check_freeze(Model(norm_span=1, name="resnet18", freeze="stage 5"))
