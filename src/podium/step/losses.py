"""What a network is trained on and judged by, per example."""

import jax
import jax.numpy as jnp

from podium.recipe.schema import Recipe
from podium.step.pixels import neighbours
from podium.step.state import Batch


def training_losses(recipe: Recipe, logits: jax.Array, batch: Batch) -> jax.Array:
    """The loss of each example of a chip's batch. A mixed image has two classes, each by its share; with class
    weights each counts by its weight."""
    label, weight = batch["label"], batch.get("weight")
    if "mix" not in batch:
        losses = label_losses(recipe, logits, label, smoothing=recipe.label_smoothing)
        return losses if weight is None else weight * losses
    own, other = (label, batch["mix"][:, 5]), (neighbours(label), 1 - batch["mix"][:, 5])
    if recipe.loss == "binary":
        ones = jnp.ones(len(label)) if weight is None else own[1] * weight + other[1] * neighbours(weight)
        first, second = (share[:, None] * jax.nn.one_hot(label, logits.shape[-1]) for label, share in (own, other))
        target = first + second
        if recipe.target_threshold:
            target = (target > recipe.target_threshold).astype(jnp.float32)
        return ones * binary(logits, target, recipe.label_smoothing)
    if weight is not None:
        own, other = (own[0], own[1] * weight), (other[0], other[1] * neighbours(weight))
    first, second = (share * cross_entropy(logits, label, recipe.label_smoothing) for label, share in (own, other))
    return first + second


def label_losses(recipe: Recipe, logits: jax.Array, label: jax.Array, *, smoothing: float) -> jax.Array:
    """Per example, of one class each."""
    if recipe.loss == "cross_entropy":
        return cross_entropy(logits, label, smoothing)
    return binary(logits, jax.nn.one_hot(label, logits.shape[-1]), smoothing)


def cross_entropy(logits: jax.Array, label: jax.Array, smoothing: float) -> jax.Array:
    """Per example; `smoothing` of the weight is spread evenly over all classes."""
    log_p = jax.nn.log_softmax(logits)
    of_label = jnp.take_along_axis(log_p, label[:, None], axis=-1)[:, 0]
    return -((1 - smoothing) * of_label + smoothing * log_p.mean(-1))


def binary(logits: jax.Array, target: jax.Array, smoothing: float) -> jax.Array:
    """Per example: the mean over the classes of the cross-entropy of "is it this one?"."""
    target = (1 - smoothing) * target + smoothing / logits.shape[-1]
    return (jax.nn.softplus(logits) - target * logits).mean(-1)


def hits(logits: jax.Array, label: jax.Array, k: int) -> jax.Array:
    """Whether the label's class is among the k that score highest. A tie counts against it, and so does NaN: a network
    that says nothing is right about nothing."""
    of_label = jnp.take_along_axis(logits, jnp.maximum(label, 0)[:, None], axis=-1)
    rank = (logits >= of_label).sum(-1)
    return (rank >= 1) & (rank <= k)
