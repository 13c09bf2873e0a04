"""Optimizers and learning-rate schedules of a recipe."""

import dataclasses

import optax

from podium.optim.adam import AdamWRule, LambRule, Moments
from podium.optim.muon import MuonRule
from podium.optim.own import OwnOptimizer, OwnRule, own_rule
from podium.optim.rules import LarsRule, Rule, SgdRule, Slots, is_adapted
from podium.optim.updating import Updated, clip_factor, norm_metrics, norms, update, zero_slots
from podium.recipe.optimization import AdamW, Cosine, Lamb, Lars, Muon, Optimizer, Polynomial, Sgd, Steps
from podium.recipe.schema import Recipe

__all__ = [
    "AdamWRule",
    "LambRule",
    "LarsRule",
    "Moments",
    "MuonRule",
    "OwnOptimizer",
    "OwnRule",
    "Rule",
    "SgdRule",
    "Slots",
    "Updated",
    "build_rule",
    "build_schedule",
    "clip_factor",
    "is_adapted",
    "norm_metrics",
    "norms",
    "own_rule",
    "update",
    "zero_slots",
]


def build_rule(optimizer: Optimizer) -> Rule:
    match optimizer:
        case Sgd():
            return SgdRule(optimizer.momentum, optimizer.weight_decay, optimizer.nesterov, optimizer.clip_norm)
        case Lars():
            scaled = optimizer.variant == "scaled_momentum"
            return LarsRule(
                optimizer.momentum, optimizer.weight_decay, optimizer.trust, scaled, clip_norm=optimizer.clip_norm
            )
        case AdamW(beta1=beta1, beta2=beta2, epsilon=epsilon):
            return AdamWRule(Moments(beta1, beta2, epsilon), optimizer.weight_decay, optimizer.clip_norm)
        case Lamb(beta1=beta1, beta2=beta2, epsilon=epsilon):
            return LambRule(Moments(beta1, beta2, epsilon), optimizer.weight_decay, optimizer.clip_norm)
        case Muon():
            fields = dataclasses.asdict(optimizer)
            return MuonRule(**{name: fields[name] for name in MuonRule.__dataclass_fields__})


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
