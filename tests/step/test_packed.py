"""A step on packed images trains and evaluates as the plain one does, from the same plain weights. A TPU's step takes
packed images; here CPU devices are made to, inside `shard_map`, on the blocks that the feed makes for each chip."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from podium import models
from podium.data.input.prefetch import local_rows, to_devices
from podium.mesh import build_mesh
from podium.models.resnet import Layers, Shape
from podium.recipe import torus
from podium.recipe.batch import pack_images
from podium.recipe.images import Data
from podium.recipe.reading import from_dict
from podium.step import programs
from podium.step.pixels import normalise_pixels, packs_images

pytestmark = pytest.mark.slow

BATCH, SIZE, CLASSES = 16, 32, 5


def recipe(name="resnet8", stem="conv7", size=SIZE, padding="symmetric", span=8):
    return from_dict({
        "epochs": 4, "batch_global": BATCH, "label_smoothing": 0.1, "steps_per_dispatch": 1,
        "data": {"image_size": size, "train_images": 320, "colour_jitter": 0.4},
        "model": {
            "name": name, "stem": stem, "classes": CLASSES, "norm_span": span, "last_scale": 0.5, "padding": padding,
        },
        "optimizer": {"name": "sgd", "learning_rate": 0.1},
        "schedule": {"decay": "polynomial", "warmup_epochs": 0.0},
    })  # fmt: skip


def host_batch(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (1, BATCH, SIZE, SIZE, 3), dtype=np.uint8),
        "label": rng.integers(0, CLASSES, (1, BATCH), dtype=np.int32),
        "colour": rng.uniform(0.6, 1.4, (1, BATCH, 3)).astype(np.float32),
    }


def build(r, chips=4):
    mesh = build_mesh(torus.lay_out(torus.Shape(2, chips // 2), BATCH, r.model.norm_span), jax.devices()[:chips])
    return programs.build_step(r, mesh)


def on_devices(batch, sharding, *, packed):
    return to_devices(batch, sharding, local_rows(sharding, BATCH), batch_global=BATCH, packed=packed)


def test_training_on_packed_images_is_training():
    """On four chips, of which two share their norms."""
    step = build(recipe())
    after = []
    for packed in (False, True):
        state, metrics = step.train(step.init(), on_devices(host_batch(), step.train_batches, packed=packed))
        after.append(jax.device_get((step.portable(state), metrics)))
    plain, of_packed = after
    for (path, a), b in zip(jax.tree.leaves_with_path(of_packed), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=jax.tree_util.keystr(path))


def test_evaluation_of_packed_images_counts_the_same():
    step = build(recipe())
    batch = {"image": host_batch()["image"][0], "label": host_batch()["label"][0]}
    batch["label"][13:] = -1
    plain, packed = (
        jax.device_get(step.evaluate(step.init(), step.zero_totals(), on_devices(batch, step.eval_batches, packed=p)))
        for p in (False, True)
    )
    assert packed["images"] == 13
    assert {name: packed[name] for name in ("top1", "top5")} == {name: plain[name] for name in ("top1", "top5")}
    np.testing.assert_allclose(packed["loss"], plain["loss"], rtol=1e-5)


def test_bottlenecks_give_the_same_logits_and_gradients():
    """Three stages: the first has a block without a projection, and the stride of the last meets single columns;
    packed images as a v3 computes them."""
    image = normalise_pixels(jnp.asarray(host_batch()["image"][0, :4]), Data())

    def of(x, apart):
        layers = Layers(models.build_norm(recipe(span=4).model), jnp.float32, apart=apart)
        shape = Shape((2, 1, 1), width=8, bottleneck=True)
        model = models.ResNet(shape, CLASSES, stem="conv7", layers=layers, last_scale=0.5, rngs=nnx.Rngs(0))
        graph, *(params, stats) = nnx.split(model, nnx.Param, nnx.BatchStat)

        def objective(params, x):
            logits = nnx.merge(graph, params, stats, copy=True)(x)
            return (logits * jnp.arange(CLASSES)).sum(), logits

        return jax.device_get(jax.jit(jax.grad(objective, has_aux=True))(params, x))

    got, want = of(jnp.asarray(pack_images(np.asarray(image))), True), of(image, False)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-5)
    for (path, a), b in zip(jax.tree.leaves_with_path(got[0]), jax.tree.leaves(want[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * abs(b).max(), err_msg=jax.tree_util.keystr(path))


def test_packed_pixels_are_changed_and_normalised_as_plain_ones():
    batch = host_batch()
    image, colour, data = batch["image"][0], jnp.asarray(batch["colour"][0]), Data()
    for colours in (None, colour):
        plain = np.asarray(normalise_pixels(jnp.asarray(image), data, colours))
        packed = normalise_pixels(jnp.asarray(pack_images(image)), data, colours)
        np.testing.assert_allclose(packed, pack_images(plain), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "packed"),
    [({}, True), ({"name": "resnet50"}, True), ({"size": 224}, True), ({"size": 36}, False), ({"size": 33}, False),
     ({"padding": "same"}, False), ({"stem": "conv3"}, False), ({"stem": "space_to_depth"}, False)],
)  # fmt: skip
def test_a_tpu_takes_packed_images_where_the_network_can(changes, packed):
    assert packs_images(recipe(**changes), on_tpu=True) is packed
    assert not packs_images(recipe(**changes), on_tpu=False)


def test_the_step_says_what_it_takes(monkeypatch):
    """On a CPU plain images; on a TPU, or what is taken for one, packed ones, unless the network is the caller's."""
    r, mesh = recipe(), build_mesh(torus.lay_out(torus.Shape(2, 2), BATCH, 8), jax.devices()[:4])
    own = lambda rngs: models.build_model(r.model, CLASSES, jnp.float32, rngs=rngs)  # noqa: E731
    assert not programs.build_step(r, mesh).packed
    monkeypatch.setattr(programs, "is_tpu", lambda _: True)
    step = programs.build_step(r, mesh)
    assert step.packed
    assert not programs.build_step(r, mesh, own).packed
    for sharding, steps, batch in (
        (step.train_batches, 1, host_batch()),
        (step.eval_batches, None, {"image": host_batch()["image"][0], "label": host_batch()["label"][0]}),
    ):
        made = on_devices(batch, sharding, packed=True)
        compiled_for = programs.batch_shapes(r, step, steps)
        assert {name: (a.shape, a.dtype, a.sharding) for name, a in made.items()} == {
            name: (s.shape, s.dtype, s.sharding) for name, s in compiled_for.items()
        }
