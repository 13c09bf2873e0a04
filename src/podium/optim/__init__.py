"""Optimizers and learning-rate schedules of a recipe."""

import optax

from podium.optim.rules import LarsRule, Rule, SgdRule, Slots, is_adapted
from podium.optim.updating import Updated, norm_metrics, norms, update, zero_slots
from podium.recipe.optimization import Cosine, Lars, Optimizer, Polynomial, Sgd, Steps
from podium.recipe.schema import Recipe

__all__ = [
    "LarsRule",
    "Rule",
    "SgdRule",
    "Slots",
    "Updated",
    "build_rule",
    "build_schedule",
    "is_adapted",
    "norm_metrics",
    "norms",
    "update",
    "zero_slots",
]


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
