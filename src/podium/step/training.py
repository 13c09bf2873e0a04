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
from podium.errors import UserError
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
        gradients, stats, metrics = self._accumulated(state, batch)
        rate = jnp.asarray(self.learning_rate(state.step), jnp.float32)
        updated = self.update(state, gradients, rate, others=(stats, metrics))
        stats, metrics = updated.others
        stats = kept_statistics(self.recipe.model, self.update.trees(state)[1], stats)
        state = self.update.with_stats(replace(updated.state, step=state.step + 1), stats)
        return state, {**metrics, **updated.metrics, "learning_rate": rate}

    def _accumulated(self, state: State, batch: Batch) -> tuple[Any, Any, Metrics]:
        """What `_backward` gives for the whole batch, from one part after the other. Each part starts from the same
        statistics, and batch norm's spans do not cross parts, so the mean of their statistics is that of the whole."""
        count = self.recipe.accumulate
        if count == 1:
            return self._backward(state, batch)
        self._check_parts(len(batch["label"]))
        parts = jax.tree.map(lambda whole: whole.reshape(count, -1, *whole.shape[1:]), batch)
        total = self._backward(state, jax.tree.map(lambda part: part[0], parts))
        for k in range(1, count):  # each waits for the one before, whose activations are then free
            part, total = lax.optimization_barrier((jax.tree.map(lambda p, k=k: p[k], parts), total))
            total = jax.tree.map(jnp.add, total, self._backward(state, part))
        gradients, stats, metrics = total
        return gradients, jax.tree.map(lambda s: s / count, stats), metrics

    def _check_parts(self, images: int) -> None:
        """Whether a chip's images can be cut into parts of whole batch-norm spans."""
        count, span = self.recipe.accumulate, self.recipe.model.norm_span
        if images % (count * span):
            raise UserError(
                f"accumulate={count} cuts the {images} images of a chip into parts of {images / count:g}, which are no "
                f"whole batch-norm spans of model.norm_span={span}; lower one of the two"
            )

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
