"""The right function with the right argument: which step's learning rate a step takes, and whose loss is evaluated."""

import jax
import numpy as np
import pytest
from flax import nnx

from podium import optim
from podium.mesh import build_mesh
from podium.recipe.reading import from_dict
from podium.recipe.torus import Shape, lay_out
from podium.step.programs import build_step

BATCH, SIZE, CLASSES, STEPS = 8, 4, 5, 3


def recipe(**changes):
    table = {
        "epochs": 10, "batch_global": BATCH, "label_smoothing": 0.4, "steps_per_dispatch": STEPS,
        "data": {"image_size": SIZE, "train_images": 80, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]},
        "model": {"name": "resnet8", "stem": "conv3", "classes": CLASSES, "norm_span": 4},
        "optimizer": {"name": "sgd", "learning_rate": 0.1, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
        "schedule": {"decay": "cosine", "warmup_epochs": 0.5},
    }  # fmt: skip
    return from_dict({**table, **changes})


class Linear(nnx.Module):
    """The smallest network: its gradient is written down in a line of NumPy."""

    def __init__(self, rngs):
        self.classifier = nnx.Linear(SIZE * SIZE * 3, CLASSES, rngs=rngs)

    def __call__(self, x):
        return self.classifier(x.reshape(len(x), -1))


@pytest.fixture(scope="module")
def step():
    return build_step(recipe(), build_mesh(lay_out(Shape(1, 2), BATCH, 4), jax.devices()[:2]), Linear)


def batch(steps: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (steps, BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    return images, rng.integers(0, CLASSES, (steps, BATCH)).astype(np.int32)


def log_softmax(kernel: np.ndarray, bias: np.ndarray, images: np.ndarray) -> np.ndarray:
    logits = ((images / 255 - 0.5) / 0.25).reshape(len(images), -1) @ kernel + bias
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def weights(state) -> tuple[np.ndarray, np.ndarray]:
    found = jax.device_get(nnx.to_pure_dict(state.params))["classifier"]
    return found["kernel"].astype(np.float64), found["bias"].astype(np.float64)


def test_step_k_takes_the_learning_rate_of_step_k(step):
    """Plain gradient descent in NumPy, at the schedule's rates for steps 0, 1, 2: the first of them is 0."""
    images, labels = batch(STEPS)
    state = step.init()
    kernel, bias = start = weights(state)
    rates = [float(optim.build_schedule(recipe())(k)) for k in range(STEPS)]
    assert rates == pytest.approx([0.0, 0.02, 0.04])  # warm-up is half of ten steps
    for rate, image, label in zip(rates, images, labels, strict=True):
        target = 0.6 * np.eye(CLASSES)[label] + 0.4 / CLASSES
        error = (np.exp(log_softmax(kernel, bias, image)) - target) / BATCH
        pixels = ((image / 255 - 0.5) / 0.25).reshape(BATCH, -1)
        kernel, bias = kernel - rate * pixels.T @ error, bias - rate * error.sum(0)

    sent = jax.device_put({"image": images, "label": labels}, step.train_batches)
    state, metrics = step.train(state, sent)
    np.testing.assert_allclose(metrics["learning_rate"], rates, rtol=1e-6)
    assert int(state.step) == STEPS
    np.testing.assert_allclose(weights(state)[0] - start[0], kernel - start[0], rtol=1e-3, atol=1e-7)
    np.testing.assert_allclose(weights(state)[1] - start[1], bias - start[1], rtol=1e-3, atol=1e-7)


def test_the_loss_of_training_is_smoothed_and_that_of_an_evaluation_is_not(step):
    images, labels = batch(STEPS)
    state = step.init()
    log_p = log_softmax(*weights(state), images[0])
    of_label = log_p[np.arange(BATCH), labels[0]]
    evaluated = step.evaluate(
        state, step.zero_totals(), jax.device_put({"image": images[0], "label": labels[0]}, step.eval_batches)
    )
    assert float(evaluated["loss"]) == pytest.approx(-of_label.sum(), rel=1e-5)
    sent = jax.device_put({"image": images, "label": labels}, step.train_batches)
    _, metrics = step.train(state, sent)
    smoothed = -(0.6 * of_label + 0.4 * log_p.mean(1)).mean()
    assert float(metrics["loss"][0]) == pytest.approx(smoothed, rel=1e-5)
    assert abs(smoothed + of_label.mean()) > 1e-2  # so far apart that neither passes for the other


def test_totals_of_evaluation_batches_add_up(step):
    images, labels = batch(2)
    state, totals = step.init(), step.zero_totals()
    for image, label in zip(images, labels, strict=True):
        totals = step.evaluate(state, totals, jax.device_put({"image": image, "label": label}, step.eval_batches))
    log_p = log_softmax(*weights(state), images.reshape(-1, SIZE, SIZE, 3))
    flat = labels.reshape(-1)
    assert int(totals["images"]) == 2 * BATCH
    assert int(totals["top1"]) == (log_p.argmax(1) == flat).sum()
    assert int(totals["top5"]) == 2 * BATCH
    assert float(totals["loss"]) == pytest.approx(-log_p[np.arange(2 * BATCH), flat].sum(), rel=1e-5)
