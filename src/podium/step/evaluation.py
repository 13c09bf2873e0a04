"""Judging a network: exact counts over batches with padding, and probabilities. Statistics and weights stay."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from podium.mesh import AXES
from podium.recipe.schema import Recipe
from podium.step.average import answering
from podium.step.losses import hits, label_losses
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
        losses = label_losses(self.recipe, logits, jnp.maximum(label, 0), smoothing=0.0)
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
        views = _views(batch["image"], flips=self.recipe.evaluate_flips, shift=self.recipe.evaluate_shift)
        logits = [weight * self.network.forward(*trees, {"image": view}, train=False)[0] for weight, view in views]
        return jnp.stack(logits).sum(0) if len(views) > 1 else logits[0]


def _views(images: jax.Array, *, flips: bool, shift: int) -> list[tuple[float, jax.Array]]:
    """What the network is shown of each image, and how much each answer counts: moved ones half of all together, then
    mirror images as much as the others."""
    views = [(1.0, images)]
    if shift:
        height, width = images.shape[1:3]
        wider = jnp.pad(images, ((0, 0), (shift, shift), (shift, shift), (0, 0)), mode="reflect")
        moved = [wider[:, at : at + height, at : at + width] for at in (0, 2 * shift)]
        views = [(0.5, images), *((0.25, view) for view in moved)]
    if flips:
        views = [(weight / 2, view) for weight, image in views for view in (image, jnp.flip(image, -2))]
    return views
