"""The step: the same losses on any number of chips, no recompilation, exact evaluation counts, donated state."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from podium import models
from podium.errors import UserError
from podium.mesh import build_mesh
from podium.recipe.images import Data
from podium.recipe.reading import from_dict
from podium.recipe.torus import Shape, lay_out
from podium.step import network as network_module
from podium.step.losses import cross_entropy, hits
from podium.step.pixels import normalise_pixels
from podium.step.programs import build_step, parameter_shapes
from podium.step.update import is_flat, is_joined, is_sharded

pytestmark = pytest.mark.slow

BATCH, SIZE, CLASSES = 32, 16, 5


def small_recipe(**changes):
    table = {
        "epochs": 4, "batch_global": BATCH, "label_smoothing": 0.1, "steps_per_dispatch": 2,
        "data": {"image_size": SIZE, "train_images": 320, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]},
        "model": {"name": "resnet8", "stem": "conv3", "classes": CLASSES, "norm_span": 8},
        "optimizer": {"name": "lars", "learning_rate": 2.0, "trust": 0.02},
        "schedule": {"decay": "polynomial", "warmup_epochs": 0.2},
    }  # fmt: skip
    return from_dict({**table, **changes})


RESNET14 = {"name": "resnet14", "stem": "conv3", "classes": CLASSES}


def tiny_network(r):
    """A network that compiles in a second, of the same parts: convolution, distributed norm, classifier."""
    norm = models.build_norm(r.model)

    class Tiny(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(3, 8, (3, 3), 2, use_bias=False, rngs=rngs)
            self.norm = norm(8, rngs=rngs)
            self.classifier = nnx.Linear(8, CLASSES, rngs=rngs)

        def __call__(self, x):
            return self.classifier(nnx.relu(self.norm(self.conv(x))).mean((1, 2)))

    return Tiny


@functools.cache
def programs(r, rows, cols, own=True, lanes=1):
    """The same for every test that asks for the same, traced and compiled once: a step holds nothing of a run."""
    shape = Shape(rows, cols, lanes)
    mesh = build_mesh(lay_out(shape, BATCH, r.model.norm_span), jax.devices()[: shape.chips])
    return build_step(r, mesh, tiny_network(r) if own else None)


def batches(step, count=2, steps=1, colour=False):
    """The same images whether they come as two batches of one step or as one batch of two, which takes twice as long to
    compile."""
    rng = np.random.default_rng(0)

    def of_one_step():
        batch = {
            "image": rng.integers(0, 256, (BATCH, SIZE, SIZE, 3), dtype=np.uint8),
            "label": rng.integers(0, CLASSES, BATCH, dtype=np.int32),
        }
        return batch | ({"colour": rng.uniform(0.6, 1.4, (BATCH, 3)).astype(np.float32)} if colour else {})

    for _ in range(count):
        batch = jax.tree.map(lambda *of_steps: np.stack(of_steps), *(of_one_step() for _ in range(steps)))
        yield jax.device_put(batch, step.train_batches)


def run(r, rows, cols, own=True, lanes=1):
    step = programs(r, rows, cols, own, lanes)
    known = step.train._cache_size()
    state, losses = step.init(), []
    for batch in batches(step, count=4):
        state, metrics = step.train(state, batch)
        losses.append(np.asarray(metrics["loss"]))
    assert step.train._cache_size() <= known + 1, "a second call must not recompile"
    return np.concatenate(losses), jax.device_get(step.portable(state))


@pytest.fixture(scope="module")
def on_one_chip():
    return run(small_recipe(), 1, 1)


@pytest.mark.parametrize(("rows", "cols"), [(1, 2), (2, 2), (2, 4)])
def test_the_same_losses_and_weights_on_any_number_of_chips(on_one_chip, rows, cols):
    losses, state = run(small_recipe(), rows, cols)
    np.testing.assert_allclose(losses, on_one_chip[0], rtol=2e-5)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(on_one_chip[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize(
    ("reduce", "weight_update", "lanes"),
    [
        ("xla", "sharded", 2),
        ("ring", "replicated", 1),
        ("ring", "sharded", 1),
        ("torus", "replicated", 2),
        ("torus", "sharded", 2),
        ("xla", "joined", 1),
        ("torus", "joined", 2),
        ("xla", "flat", 2),
        ("torus", "flat", 2),
    ],
)
def test_every_way_to_sum_and_update_gives_the_same_losses(on_one_chip, reduce, weight_update, lanes):
    # Buckets of 300 bytes: a tensor of its own, several together, and the scalars among them.
    r = small_recipe(reduce=reduce, weight_update=weight_update, bucket_mb=0.0003)
    losses, state = run(r, 2, 2, lanes=lanes)
    np.testing.assert_allclose(losses, on_one_chip[0], rtol=2e-5)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(on_one_chip[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize(
    ("reduce", "weight_update"),
    [("xla", "replicated"), ("torus", "replicated"), ("xla", "sharded"), ("xla", "flat"), ("xla", "joined")],
)
def test_gradients_summed_in_bf16_are_rounded_and_nothing_else_is(reduce, weight_update):
    """Of the first step, whose forward pass no rounded gradient has touched yet."""
    after = {}
    for wire in ("fp32", "bf16"):
        sgd = {"name": "sgd", "learning_rate": 0.1, "momentum": 0.0}
        r = small_recipe(
            reduce=reduce, weight_update=weight_update, gradient_sum=wire, optimizer=sgd,
            schedule={"decay": "cosine", "warmup_epochs": 0},
        )  # fmt: skip
        step = programs(r, 2, 2)
        state, metrics = step.train(step.init(), next(batches(step)))
        portable = step.portable(state)
        after[wire] = jax.device_get((portable.params, portable.stats, metrics))
    (exact, stats, metrics), (rounded, same_stats, same_metrics) = after["fp32"], after["bf16"]
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(rounded))
    # Four summands of 8 bits each: a gradient is off by some 2^-8 of the largest; times the rate of 0.1.
    largest = float(metrics["gradient_norm"][0])
    for a, b in zip(jax.tree.leaves(rounded), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=0.1 * 4 * 2.0**-8 * largest)
    assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (rounded, exact)), strict=True))
    for a, b in zip(*map(jax.tree.leaves, (stats, same_stats)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(metrics["loss"], same_metrics["loss"], rtol=1e-6)


@pytest.mark.parametrize("optimizer", [{"name": "sgd", "learning_rate": 0.1}, {"name": "lars", "learning_rate": 2.0}])
@pytest.mark.parametrize("weight_update", ["replicated", "joined", "sharded", "flat"])
def test_norms_are_reported_and_those_carried_are_of_the_weights(optimizer, weight_update):
    step = programs(small_recipe(weight_update=weight_update, optimizer=optimizer), 1, 2)
    state = step.init()
    for batch in batches(step):  # the first has a learning rate of 0
        state, metrics = step.train(state, batch)
    tensors = [np.asarray(leaf, np.float64).reshape(-1) for leaf in jax.tree.leaves(step.portable(state).params)]
    np.testing.assert_allclose(metrics["weight_norm"][-1], np.linalg.norm(np.concatenate(tensors)), rtol=1e-5)
    assert (np.asarray(metrics["gradient_norm"]) > 0).all()
    if optimizer["name"] == "lars":
        np.testing.assert_allclose(step.portable(state).weight_norms, [np.linalg.norm(t) for t in tensors], rtol=1e-5)
        assert (metrics["trust_ratio_min"] <= metrics["trust_ratio_max"]).all()
    else:
        assert state.weight_norms is None
    assert all(values.shape == (1,) for values in metrics.values())


@pytest.mark.parametrize("weight_update", ["replicated", "joined", "sharded", "flat"])
def test_a_restart_is_bit_identical_norms_included(weight_update):
    step = programs(small_recipe(weight_update=weight_update), 1, 4)
    *before, last = batches(step, count=3)
    state = step.init()
    for batch in before:
        state, _ = step.train(state, batch)
    restarted = step.resumed(jax.device_put(jax.device_get(step.portable(state)), step.everywhere))
    ends = [step.portable(step.train(start, last)[0]) for start in (restarted, state)]
    for a, b in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_chip_keeps_its_rows_of_weights_and_slots_in_a_sharded_update():
    step = programs(small_recipe(weight_update="sharded"), 2, 4)
    state = step.init()
    for rows in (state.own_weights, state.slots["momentum"]):
        assert rows.shape == (8, 8, 128)  # five tensors of less than a row each, and three rows that fill up
        assert {shard.data.shape for shard in rows.addressable_shards} == {(1, 8, 128)}
    text = step.train.lower(state, next(batches(step))).compile().as_text()
    assert " reduce-scatter(" in text


def test_the_update_is_flat_on_gpus_and_where_that_is_asked_for():
    assert is_flat(small_recipe(), on_gpu=True)
    assert not is_flat(small_recipe(), on_gpu=False)
    assert is_flat(small_recipe(weight_update="flat"), on_gpu=False)
    assert not is_flat(small_recipe(weight_update="sharded"), on_gpu=True)


def test_a_flat_update_keeps_weights_slots_and_statistics_in_a_few_buffers():
    state = programs(small_recipe(weight_update="flat", bucket_mb=0.0003), 1, 2).init()
    assert len(state.params) == len(state.slots["momentum"]) > 1
    assert all(buffer.shape[1:] == (8, 128) for buffer in state.params)
    assert state.stats.ndim == 1


def test_the_first_flat_buffer_has_what_the_backward_pass_finishes_first():
    """In the tree, whose keys are sorted, the classifier stands before the convolution; the network made them in the
    order in which it uses them."""
    r = small_recipe(weight_update="flat", bucket_mb=0.0002)
    step = programs(r, 1, 1)
    state = step.init()
    classifier, convolution = (step.portable(state).params[name]["kernel"][...] for name in ("classifier", "conv"))
    first, last = (np.asarray(state.params[k]).reshape(-1) for k in (0, -1))
    np.testing.assert_array_equal(first[first != 0], np.asarray(classifier).reshape(-1))
    np.testing.assert_array_equal(last[: convolution.size], np.asarray(convolution).reshape(-1))
    mesh = build_mesh(lay_out(Shape(1, 1, 1), BATCH, 8), jax.devices()[:1])
    network = network_module.build_network(small_recipe(model={**RESNET14, "norm_span": 8}), mesh)
    paths = list(nnx.to_flat_state(jax.eval_shape(network.initial)[0]).paths)
    tops = ["/".join(map(str, paths[k][:2] if paths[k][0] == "blocks" else paths[k][:1])) for k in network.order]
    blocks = [f"blocks/{k}" for k in range(6)]
    assert list(dict.fromkeys(tops)) == ["first", "first_norm", *blocks, "classifier"]


def test_vectors_are_joined_on_tpus_and_where_that_is_asked_for():
    assert is_joined(small_recipe(), on_tpu=True)
    assert not is_joined(small_recipe(), on_tpu=False)
    assert not is_joined(small_recipe(weight_update="replicated"), on_tpu=True)
    step = programs(small_recipe(weight_update="joined"), 1, 2)
    state, plain = step.init(), step.portable(step.init())
    vectors = [leaf for leaf in jax.tree.leaves(plain.params) if leaf.ndim == 1]
    for weights in (state.params, state.slots["momentum"]):
        assert all(kernel.ndim > 1 for kernel in weights["kernels"])
        assert [joined.shape for joined in weights["vectors"]] == [(sum(vector.size for vector in vectors),)]
    assert [joined.ndim for joined in state.stats] == [1]


@pytest.mark.parametrize(
    ("weight_update", "chips", "on_cpu", "sharded"),
    [("auto", 8, True, True), ("auto", 4, True, False), ("auto", 2048, False, False),
     ("sharded", 4, False, True), ("sharded", 1, True, False), ("replicated", 16, True, False)],
)  # fmt: skip
def test_the_update_is_sharded_where_that_is_asked_for_or_known_to_be_faster(weight_update, chips, on_cpu, sharded):
    assert is_sharded(small_recipe(weight_update=weight_update), chips, on_cpu) is sharded


@pytest.mark.parametrize("optimizer", [{"name": "sgd", "learning_rate": 0.1}, {"name": "lars", "learning_rate": 2.0}])
def test_a_portable_state_moves_between_chips_and_ways_to_update(optimizer):
    def after_two_dispatches(*places):
        """Losses of a run whose dispatches each run at another place, from the portable state of the one before."""
        losses, portable = [], None
        for k, (weight_update, rows, cols) in enumerate(places):
            step = programs(small_recipe(weight_update=weight_update, optimizer=optimizer), rows, cols)
            state = step.init() if portable is None else step.resumed(jax.device_put(portable, step.everywhere))
            for batch in list(batches(step, count=4))[2 * k : 2 * k + 2]:
                state, metrics = step.train(state, batch)
                losses.append(np.asarray(metrics["loss"]))
            portable = jax.device_get(step.portable(state))
        return np.concatenate(losses)

    stayed = after_two_dispatches(("replicated", 1, 2), ("replicated", 1, 2))
    for places in [
        (("sharded", 2, 4), ("sharded", 1, 4)), (("replicated", 1, 2), ("sharded", 2, 4)),
        (("flat", 2, 2), ("sharded", 2, 4)), (("sharded", 1, 4), ("flat", 2, 2)),
        (("joined", 1, 2), ("sharded", 2, 4)), (("flat", 2, 2), ("joined", 1, 2)),
    ]:  # fmt: skip
        np.testing.assert_allclose(after_two_dispatches(*places), stayed, rtol=2e-5)


def test_a_resnet_has_the_same_losses_on_one_chip_and_on_four():
    r = small_recipe(steps_per_dispatch=1)
    losses = []
    for rows, cols in ((1, 1), (2, 2)):
        step = programs(r, rows, cols, own=False)
        _, metrics = step.train(step.init(), next(batches(step)))
        losses.append(np.asarray(metrics["loss"]))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_several_steps_per_dispatch_are_the_same_steps(on_one_chip):
    step = programs(small_recipe(), 1, 1)
    state, losses = step.init(), []
    for batch in batches(step, steps=2):
        state, metrics = step.train(state, batch)
        assert all(values.shape == (2,) for values in metrics.values())
        losses.append(metrics["loss"])
    np.testing.assert_allclose(np.concatenate(losses), on_one_chip[0], rtol=1e-6)


def test_a_state_is_donated_and_repeats_are_bit_identical():
    step = programs(small_recipe(), 2, 2)
    first, (one, two) = step.init(), batches(step)
    after, _ = step.train(first, one)
    assert jax.tree.leaves(first.params)[0].is_deleted()
    after, _ = step.train(after, two)
    again, _ = step.train(step.train(step.init(), one)[0], two)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_colours_change_what_the_network_sees():
    step = programs(small_recipe(), 1, 2)
    plain, coloured = (next(batches(step, colour=c)) for c in (False, True))
    losses = [float(step.train(step.init(), batch)[1]["loss"][0]) for batch in (plain, coloured)]
    assert losses[0] != losses[1]


def test_evaluation_counts_every_image_once_and_masks_padding():
    step = programs(small_recipe(), 2, 4)
    state, rng = step.init(), np.random.default_rng(1)
    image = rng.integers(0, 256, (BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    label = rng.integers(0, CLASSES, BATCH).astype(np.int32)
    label[27:] = -1
    totals = step.evaluate(
        state, step.zero_totals(), jax.device_put({"image": image, "label": label}, step.eval_batches)
    )
    counted = jax.device_get(totals)
    assert counted["images"] == 27
    best = np.argsort(-np.asarray(step.predict(state, image)), axis=1)
    assert counted["top1"] == (best[:27, 0] == label[:27]).sum()
    assert counted["top5"] == 27  # there are five classes
    assert counted["loss"] > 0


def test_bf16_convolutions_keep_fp32_everything_else():
    r = small_recipe(precision="bf16", steps_per_dispatch=1)
    step = programs(r, 1, 2, own=False)
    text = step.train.lower(step.init(), next(batches(step))).as_text()
    convolutions = [line for line in text.splitlines() if "stablehlo.convolution" in line]
    assert convolutions
    assert all("bf16" in line.split("->")[-1] for line in convolutions)
    sums = [line for line in text.splitlines() if "stablehlo.all_reduce" in line or "all_gather" in line]
    assert all(leaf.dtype in (jnp.float32, jnp.int32) for leaf in jax.tree.leaves(step.init()))
    assert sums
    assert not any("bf16" in line for line in sums)


def test_fp32_is_multiplied_as_fp32_where_the_device_would_round(monkeypatch):
    def products(precision, on_cpu):
        monkeypatch.setattr(network_module, "is_cpu", lambda _: on_cpu)
        step = programs.__wrapped__(small_recipe(precision=precision), 1, 1, own=False)
        text = step.train.lower(step.init(), next(batches(step))).as_text()
        lines = [line for line in text.splitlines() if re.search(r"stablehlo\.(convolution|dot_general)", line)]
        return ["HIGHEST" in line for line in lines if "tensor<f32>" not in line]  # which are LARS's norms

    assert all(products("fp32", on_cpu=False))
    assert not any(products("fp32", on_cpu=True) + products("bf16", on_cpu=False))


def test_cross_entropy_with_smoothing_against_numpy():
    logits, label = np.random.default_rng(0).standard_normal((4, CLASSES)).astype(np.float32), np.array([0, 1, 4, 2])
    target = 0.9 * np.eye(CLASSES)[label] + 0.1 / CLASSES
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    smoothed = cross_entropy(jnp.asarray(logits), jnp.asarray(label), 0.1)
    np.testing.assert_allclose(smoothed, -(target * log_p).sum(1), rtol=1e-5)


def test_colour_factors_of_one_change_nothing():
    image = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    plain = normalise_pixels(jnp.asarray(image), Data())
    np.testing.assert_allclose(normalise_pixels(jnp.asarray(image), Data(), jnp.ones((3, 3))), plain, atol=1e-5)
    np.testing.assert_allclose(plain, (image / 255 - np.array(Data().mean)) / np.array(Data().std), atol=1e-5)


def test_a_tie_and_a_network_that_says_nothing_are_not_right():
    logits = jnp.array([[3.0, 2.0, 1.0], [2.0, 2.0, 1.0], [0.0, 0.0, 0.0], [jnp.nan, jnp.nan, jnp.nan]])
    label = jnp.zeros(4, jnp.int32)
    assert hits(logits, label, 1).tolist() == [True, False, False, False]
    assert hits(logits, label, 2).tolist() == [True, True, False, False]


@pytest.mark.parametrize("own", [False, True])
def test_the_shapes_of_weights_are_those_that_a_step_trains(own):
    recipe, mesh = small_recipe(), build_mesh(lay_out(Shape(1, 2), BATCH, 8), jax.devices()[:2])
    network = tiny_network(recipe) if own else None
    trained = jax.eval_shape(build_step(recipe, mesh, network).init).params
    told = parameter_shapes(recipe, mesh, network)
    assert str(jax.tree.structure(told)) == str(jax.tree.structure(trained))
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(told)] == [(x.shape, x.dtype) for x in jax.tree.leaves(trained)]


def test_a_network_with_another_number_of_logits_than_classes_is_refused():
    class Seven(nnx.Module):
        def __init__(self, rngs):
            self.classifier = nnx.Linear(3, 7, rngs=rngs)

        def __call__(self, x):
            return self.classifier(x.mean((1, 2)))

    mesh = build_mesh(lay_out(Shape(1, 1), BATCH, 8), jax.devices()[:1])
    with pytest.raises(
        UserError, match=r"gives \[7\] numbers per image and the data has 5 classes; make its last layer 5"
    ):
        build_step(small_recipe(), mesh, Seven)
