"""What a network is trained on and judged by, per example."""

import jax
import jax.numpy as jnp


def cross_entropy(logits: jax.Array, label: jax.Array, smoothing: float) -> jax.Array:
    """Per example; `smoothing` of the weight is spread evenly over all classes."""
    log_p = jax.nn.log_softmax(logits)
    of_label = jnp.take_along_axis(log_p, label[:, None], axis=-1)[:, 0]
    return -((1 - smoothing) * of_label + smoothing * log_p.mean(-1))


def hits(logits: jax.Array, label: jax.Array, k: int) -> jax.Array:
    """Whether the label's class is among the k that score highest. A tie counts against it, and so does NaN: a network
    that says nothing is right about nothing."""
    of_label = jnp.take_along_axis(logits, jnp.maximum(label, 0)[:, None], axis=-1)
    rank = (logits >= of_label).sum(-1)
    return (rank >= 1) & (rank <= k)
