"""Mixed and erased images and their losses on the device, beside the same in plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.step.test_programs import BATCH, CLASSES, SIZE, programs, small_recipe

from podium.data.input import counter_rng
from podium.data.input.mixing import erased, mixes
from podium.errors import UserError
from podium.recipe.augmentation import Augment
from podium.recipe.batch import pack_images
from podium.recipe.images import Data
from podium.step.losses import label_losses, training_losses
from podium.step.pixels import neighbours, network_input

AUGMENT = Augment(mixup=0.8, cutmix=1.0, erasing=0.5)
DATA = Data(image_size=SIZE)


def batch_of(n, seed=0, augment=AUGMENT):
    rng, keys = np.random.default_rng(seed), counter_rng.key(seed, 0, np.arange(n))
    return {
        "image": rng.integers(0, 256, (n, SIZE, SIZE, 3), dtype=np.uint8),
        "label": rng.integers(0, CLASSES, n).astype(np.int32),
        "erase": erased(augment, keys, SIZE),
        "mix": mixes(augment, keys, SIZE),
    }


def twin(batch):
    """What the network is given, image by image and in float64."""
    mean, std = np.array(DATA.mean), np.array(DATA.std)
    x = batch["image"] / 255.0
    for image, (left, top, right, bottom) in zip(x, batch["erase"], strict=True):
        image[top:bottom, left:right] = mean
    mixed = x.copy()
    for k, (kept, *box, _) in enumerate(batch["mix"].astype(np.float64)):
        left, top, right, bottom = map(int, box)
        mixed[k] = kept * x[k] + (1 - kept) * x[k ^ 1]
        mixed[k, top:bottom, left:right] = x[k ^ 1, top:bottom, left:right]
    return (mixed - mean) / std


def test_the_device_mixes_and_erases_as_numpy_does():
    batch = batch_of(32)
    assert (batch["mix"][:, 0] < 1).any()
    assert batch["mix"][:, 1:5].any()
    assert batch["erase"].any()
    np.testing.assert_allclose(network_input(jax.tree.map(jnp.asarray, batch), DATA), twin(batch), atol=1e-5)


def test_packed_images_are_mixed_and_erased_alike():
    batch = jax.tree.map(jnp.asarray, batch_of(32))
    packed = {**batch, "image": jnp.asarray(pack_images(np.asarray(batch["image"])))}
    found = pack_images(np.asarray(network_input(batch, DATA)))
    np.testing.assert_array_equal(network_input(packed, DATA), found)


def test_neighbours_change_places_and_an_odd_number_is_refused():
    assert neighbours(jnp.arange(6)).tolist() == [1, 0, 3, 2, 5, 4]
    with pytest.raises(UserError, match="a chip takes 3 images at once"):
        neighbours(jnp.arange(3))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("loss", "threshold"), [("cross_entropy", 0.0), ("binary", 0.0), ("binary", 0.2)])
def test_losses_of_mixed_images_are_those_of_soft_labels(loss, threshold, weighted):
    r = small_recipe(loss=loss, target_threshold=threshold)
    batch, rng = batch_of(32), np.random.default_rng(1)
    if weighted:
        batch["weight"] = np.array([1.0, 0.5, 2.0, 1.5, 3.0], np.float32)[batch["label"]]
    logits = rng.normal(0, 2, (32, CLASSES))
    expected = []
    for k, (x, own) in enumerate(zip(logits, batch["mix"][:, 5].astype(np.float64), strict=True)):
        target, labels = np.zeros(CLASSES), (batch["label"][k], batch["label"][k ^ 1])
        weights = [batch.get("weight", np.ones(32))[j] for j in (k, k ^ 1)]
        for label, share in zip(labels, (own, 1 - own), strict=True):
            target[label] += share
        if loss == "cross_entropy":
            log_p = x - np.log(np.exp(x).sum())
            parts = [-(0.9 * log_p[label] + 0.1 * log_p.mean()) for label in labels]
            expected.append(own * weights[0] * parts[0] + (1 - own) * weights[1] * parts[1])
        else:
            target = 0.9 * (target > threshold if threshold else target) + 0.1 / CLASSES
            p = 1 / (1 + np.exp(-x))
            binary = -(target * np.log(p) + (1 - target) * np.log(1 - p)).mean()
            expected.append((own * weights[0] + (1 - own) * weights[1]) * binary)
    found = training_losses(r, jnp.asarray(logits), jax.tree.map(jnp.asarray, batch))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_whole_image_has_the_loss_of_its_label():
    logits, label = jnp.asarray(np.random.default_rng(0).normal(0, 1, (4, CLASSES))), jnp.arange(4)
    for loss in ("cross_entropy", "binary"):
        r = small_recipe(loss=loss)
        whole = jnp.tile(jnp.array([1.0, 0, 0, 0, 0, 1]), (4, 1))
        mixed = training_losses(r, logits, {"label": label, "mix": whole})
        np.testing.assert_allclose(mixed, label_losses(r, logits, label, smoothing=0.1), rtol=1e-5)


def test_mixed_batches_train_alike_on_any_chips_and_in_parts():
    changes = {"augment": {"mixup": 0.8, "cutmix": 1.0, "erasing": 0.5}, "loss": "binary", "norm_span": 4}
    changes["model"] = {**vars(small_recipe().model), "norm_span": 4}
    del changes["norm_span"]
    found = []
    for rows, cols, accumulate in ((1, 1, 1), (1, 2, 2), (2, 4, 1)):
        step = programs(small_recipe(accumulate=accumulate, **changes), rows, cols)
        batch = {name: np.stack([part, part]) for name, part in batch_of(BATCH).items()}
        _, metrics = step.train(step.init(), jax.device_put(batch, step.train_batches))
        found.append(np.asarray(metrics["loss"]))
    np.testing.assert_allclose(found[1:], found[:1] * 2, rtol=2e-5)
