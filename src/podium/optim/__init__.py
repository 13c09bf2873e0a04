"""Optimizers and learning-rate schedules of a recipe."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from podium.optim.rules import LarsRule, Rule, SgdRule, is_adapted
from podium.recipe.schema import Cosine, Lars, Optimizer, Polynomial, Recipe, Sgd, Steps

__all__ = ["LarsRule", "Rule", "SgdRule", "build_rule", "build_schedule", "is_adapted", "update"]


def build_rule(optimizer: Optimizer) -> Rule:
    match optimizer:
        case Sgd():
            return SgdRule(optimizer.momentum, optimizer.weight_decay, optimizer.nesterov)
        case Lars():
            scaled = optimizer.variant == "scaled_momentum"
            return LarsRule(optimizer.momentum, optimizer.weight_decay, optimizer.trust, scaled)


def build_schedule(recipe: Recipe) -> optax.Schedule:
    """Step → learning rate: linear warm-up from 0, then the recipe's decay to the end of training."""
    steps_per_epoch = recipe.data.train_images / recipe.batch_global
    warmup_steps = round(recipe.schedule.warmup_epochs * steps_per_epoch)
    decay_steps = max(1, recipe.train_steps - warmup_steps)
    peak = recipe.optimizer.learning_rate
    match recipe.schedule:
        case Polynomial(power=power):
            decay = optax.polynomial_schedule(peak, 0.0, power, decay_steps)
        case Cosine():
            decay = optax.cosine_decay_schedule(peak, decay_steps)
        case Steps(at_epochs=at, factor=factor):
            borders = {round(epoch * steps_per_epoch) - warmup_steps: factor for epoch in at}
            decay = optax.piecewise_constant_schedule(peak, borders)
    if warmup_steps == 0:
        return decay
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup_steps), decay], [warmup_steps])


def update(
    rule: Rule,
    params: Any,
    gradients: Any,
    momenta: Any,
    rate: jax.Array,
    adapted: Any = None,
    total: Callable[[jax.Array], jax.Array] = lambda squares: squares,
) -> tuple[Any, Any]:
    """The rule over whole tensors, or over pieces of them: then `total` sums a vector over the chips that have the
    other pieces. `adapted` says of each tensor whether it is scaled and decayed; by default its shape does."""
    adapted = jax.tree.map(is_adapted, params) if adapted is None else adapted
    (weights, treedef), slopes = jax.tree.flatten(params), jax.tree.leaves(gradients)
    norms: Any = [0.0] * (2 * len(weights))
    if rule.needs_norms:
        squares = [jnp.vdot(t, t, precision="highest") for t in weights + slopes]  # TPUs would round t first
        norms = jnp.sqrt(total(jnp.stack(squares)))
    updated = [
        rule(
            weights[k], slopes[k], momentum, rate=rate, adapted=is_one,
            weight_norm=norms[k], gradient_norm=norms[len(weights) + k],
        )
        for k, (momentum, is_one) in enumerate(zip(jax.tree.leaves(momenta), jax.tree.leaves(adapted), strict=True))
    ]  # fmt: skip
    new_weights, new_momenta = zip(*updated, strict=True)
    return jax.tree.unflatten(treedef, new_weights), jax.tree.unflatten(treedef, new_momenta)
