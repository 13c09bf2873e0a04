"""Optimizers and learning-rate schedules of a recipe."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from podium import recipe as recipes
from podium.optim.rules import LarsRule, Rule, SgdRule, is_adapted

__all__ = ["LarsRule", "Rule", "SgdRule", "build_rule", "build_schedule", "is_adapted", "update"]


def build_rule(optimizer: recipes.Optimizer) -> Rule:
    match optimizer:
        case recipes.Sgd():
            return SgdRule(optimizer.momentum, optimizer.weight_decay, optimizer.nesterov)
        case recipes.Lars():
            scaled = optimizer.variant == "scaled_momentum"
            return LarsRule(optimizer.momentum, optimizer.weight_decay, optimizer.trust, scaled)


def build_schedule(recipe: recipes.Recipe) -> optax.Schedule:
    """Step → learning rate: linear warm-up from 0, then the recipe's decay to the end of training."""
    steps_per_epoch = recipe.data.train_images / recipe.batch_global
    warmup_steps = round(recipe.schedule.warmup_epochs * steps_per_epoch)
    decay_steps = max(1, recipe.train_steps - warmup_steps)
    peak = recipe.optimizer.learning_rate
    match recipe.schedule:
        case recipes.Polynomial(power=power):
            decay = optax.polynomial_schedule(peak, 0.0, power, decay_steps)
        case recipes.Cosine():
            decay = optax.cosine_decay_schedule(peak, decay_steps)
        case recipes.Steps(at_epochs=at, factor=factor):
            borders = {round(epoch * steps_per_epoch) - warmup_steps: factor for epoch in at}
            decay = optax.piecewise_constant_schedule(peak, borders)
    if warmup_steps == 0:
        return decay
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup_steps), decay], [warmup_steps])


def update(rule: Rule, params: Any, gradients: Any, momenta: Any, rate: jax.Array) -> tuple[Any, Any]:
    """The rule over whole tensors: every chip updates every weight."""

    def one(weight: jax.Array, gradient: jax.Array, momentum: jax.Array) -> tuple[jax.Array, jax.Array]:
        norms = [jnp.linalg.norm(t.ravel()) if rule.needs_norms else 0.0 for t in (weight, gradient)]
        return rule(
            weight, gradient, momentum, rate=rate, adapted=is_adapted(weight),
            weight_norm=norms[0], gradient_norm=norms[1],
        )  # fmt: skip

    pairs = jax.tree.map(one, params, gradients, momenta)
    return jax.tree.transpose(jax.tree.structure(params), jax.tree.structure((0, 0)), pairs)
