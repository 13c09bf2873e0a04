"""One training step, as every chip runs it inside `jax.shard_map`: forward and backward on the chip's own images, then
gradients, batch-norm statistics and metrics summed over the torus and the weights updated (`update`). A dispatch is
several steps in one program.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from podium import optim
from podium.mesh import AXES, is_cpu
from podium.recipe.schema import Recipe
from podium.step.layer_rates import kept_statistics, without_gradients
from podium.step.losses import cross_entropy, hits
from podium.step.network import Network
from podium.step.state import Batch, Metrics, State
from podium.step.update import WeightUpdate


@dataclass(frozen=True)
class Training:
    recipe: Recipe
    network: Network
    learning_rate: optax.Schedule
    update: WeightUpdate

    def start(self) -> State:
        """The state before the first step, in portable form."""
        params, stats = self.network.initial()
        return State(jnp.zeros((), jnp.int32), params, stats, optim.zero_slots(self.update.rule, params))

    def dispatch(self, state: State, batches: Batch) -> tuple[State, Metrics]:
        """Steps one after the other, over the leading axis of `batches`; metrics have that axis too."""
        if is_cpu(self.network.mesh):
            return self._unrolled(state, batches)
        return lax.scan(self.train_one, state, batches)

    def train_one(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        gradients, stats, metrics = self._backward(state, batch)
        rate = jnp.asarray(self.learning_rate(state.step), jnp.float32)
        updated = self.update(state, gradients, rate, others=(stats, metrics))
        stats, metrics = updated.others
        stats = kept_statistics(self.recipe.model, self.update.trees(state)[1], stats)
        state = self.update.with_stats(replace(updated.state, step=state.step + 1), stats)
        return state, {**metrics, **updated.metrics, "learning_rate": rate}

    def _backward(self, state: State, batch: Batch) -> tuple[Any, Any, Metrics]:
        """This chip's share of the gradients, of the new statistics and of the metrics: their sums over all chips are
        the real ones."""

        params, before = self.update.trees(state)

        def objective(params: Any) -> tuple[jax.Array, tuple[Any, Metrics]]:
            params = without_gradients(self.recipe.model, params)
            logits, stats = self.network.forward(params, before, batch, train=True)
            losses = cross_entropy(logits, batch["label"], self.recipe.label_smoothing)
            right = hits(logits, batch["label"], 1)
            metrics = {"loss": losses.sum(), "top1": right.sum(dtype=jnp.float32)}
            metrics = {name: total / self.recipe.batch_global for name, total in metrics.items()}
            return metrics["loss"], (stats, metrics)

        # Parameters that vary by chip have gradients that do: summing them over the torus is then ours to do.
        varying = lax.pcast(params, AXES, to="varying")
        gradients, (stats, metrics) = jax.grad(objective, has_aux=True)(varying)
        return gradients, jax.tree.map(lambda s: s / self.network.mesh.size, stats), metrics

    def _unrolled(self, state: State, batches: Batch) -> tuple[State, Metrics]:
        """`lax.scan` without its loop: XLA:CPU brings convolutions into the form that its fast kernels know only
        outside of loops, and those left inside run some thirty times slower (docs/decisions/001)."""
        metrics = []
        for i in range(len(batches["label"])):
            state, of_step = self.train_one(state, jax.tree.map(lambda b, i=i: b[i], batches))
            metrics.append(of_step)
        return state, jax.tree.map(lambda *values: jnp.stack(values), *metrics)
