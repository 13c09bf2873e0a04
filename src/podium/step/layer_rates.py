"""Layers that learn at a rate of their own: frozen ones at none, the classifier at `optimizer.classifier_rate`, biases
before it at `optimizer.bias_rate`."""

from typing import Any

import jax
from jax import lax

from podium.models.freeze import is_frozen, keeps_statistics
from podium.recipe.schema import Model, Recipe

_BIASES = {"bias", "patch_bias"}
Factors = tuple[float | jax.Array, ...] | None
"""What the learning rate of each tensor is multiplied by; None where all factors are 1."""


def rate_factors(recipe: Recipe, params: Any) -> Factors:
    """What the learning rate of each tensor of `params` is multiplied by."""
    frozen, optimizer = is_frozen(recipe.model), recipe.optimizer

    def factor(path: tuple[str, ...]) -> float:
        if path[0] == "classifier":
            return optimizer.classifier_rate
        if frozen(path):
            return 0.0
        return optimizer.bias_rate if _BIASES & set(path) else 1.0

    factors = tuple(factor(_names(path)) for path, _ in jax.tree_util.tree_leaves_with_path(params))
    return None if all(factor == 1.0 for factor in factors) else factors


def without_gradients(model: Model, params: Any) -> Any:
    """`params`, of which the frozen ones are constants: nothing is then computed backward through the layers that come
    before the first that learns."""
    frozen = is_frozen(model)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: lax.stop_gradient(leaf) if frozen(_names(path)) else leaf, params
    )


def kept_statistics(model: Model, before: Any, after: Any) -> Any:
    """The statistics after a step, of which the frozen ones are exactly as they were: a mean over chips may round."""
    keeps = keeps_statistics(model)
    return jax.tree_util.tree_map_with_path(lambda path, b, a: b if keeps(_names(path)) else a, before, after)


def _names(path: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
