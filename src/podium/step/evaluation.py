"""Judging a network: exact counts over batches with padding, and probabilities. Statistics and weights stay."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from podium.mesh import AXES
from podium.recipe.schema import Recipe
from podium.step.average import answering
from podium.step.losses import cross_entropy, hits
from podium.step.network import Network
from podium.step.state import Batch, Metrics, State
from podium.step.update import WeightUpdate


@dataclass(frozen=True)
class Evaluation:
    recipe: Recipe
    network: Network
    update: WeightUpdate
    """Knows where a state has the network's weights."""

    def zero_totals(self) -> Metrics:
        counts = ["images", "top1", "top5", *(["raw_top1"] if self.recipe.average_decay else [])]
        return {name: jnp.zeros((), jnp.int32) for name in counts} | {"loss": jnp.zeros((), jnp.float32)}

    def add(self, state: State, totals: Metrics, batch: Batch) -> Metrics:
        """The totals with this batch counted in; runs inside `jax.shard_map`."""
        logits = self._logits(answering(state), batch)
        label = batch["label"]
        counted = label >= 0
        losses = cross_entropy(logits, jnp.maximum(label, 0), 0.0)
        of_batch = {
            "images": counted.sum(),
            "top1": (hits(logits, label, 1) & counted).sum(),
            "top5": (hits(logits, label, 5) & counted).sum(),
            "loss": jnp.where(counted, losses, 0.0).sum(),
        }
        if self.recipe.average_decay:
            of_batch["raw_top1"] = (hits(self._logits(state, batch), label, 1) & counted).sum()
        return jax.tree.map(lambda total, part: total + lax.psum(part, AXES), totals, of_batch)

    def predict(self, state: State, image: jax.Array) -> jax.Array:
        return jax.nn.softmax(self._logits(answering(state), {"image": image}))

    def _logits(self, state: State, batch: Batch) -> jax.Array:
        trees = self.update.trees(state)
        logits = self.network.forward(*trees, batch, train=False)[0]
        if not self.recipe.evaluate_flips:
            return logits
        mirrored = {"image": jnp.flip(batch["image"], -2)}
        return (logits + self.network.forward(*trees, mirrored, train=False)[0]) / 2
