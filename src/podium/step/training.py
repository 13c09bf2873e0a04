"""One training step, as every chip runs it inside `jax.shard_map`: forward and backward on the chip's own images, then
gradients, batch-norm statistics and metrics summed over the torus and the weights updated (`update`). A dispatch is
several steps in one program.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from podium import optim
from podium.errors import UserError
from podium.mesh import AXES, is_cpu
from podium.models.freeze import keeps_any
from podium.recipe.schema import Recipe
from podium.reduce import links
from podium.step.average import averaged
from podium.step.carried import join, split
from podium.step.layer_rates import kept_statistics, without_gradients
from podium.step.losses import hits, training_losses
from podium.step.network import Means, Network
from podium.step.state import Batch, Metrics, State
from podium.step.update import WeightUpdate

_ATTEMPTS = 8  # each brings the means near of at least one layer more; one that finds all of them near is the last
_FAR = "far"


class _Share(NamedTuple):
    """What one chip has found: the sums over all chips are the real values."""

    gradients: Any
    stats: Any
    """In the form in which a state has them, where `others` has nothing; else as the network has them."""
    metrics: Metrics
    others: Any
    """What the network keeps beyond such means, the same on all chips (`carried`)."""


class _Forward(NamedTuple):
    """What a forward pass leaves besides its loss."""

    stats: Any
    metrics: Metrics
    means: Means


class _Attempt(NamedTuple):
    """A step's state after some attempts, as the loop of attempts passes it on."""

    again: jax.Array
    """Whether one more is needed."""
    tried: jax.Array
    state: State
    about: list[Means]
    metrics: Metrics


def _has_any(tree: Any) -> bool:
    return bool(jax.tree.leaves(tree))


def _added(total: _Share, part: _Share) -> _Share:
    """The sums of both; what is not summed is that of the last part."""
    return part._replace(
        gradients=jax.tree.map(jnp.add, total.gradients, part.gradients),
        stats=jax.tree.map(jnp.add, total.stats, part.stats),
        metrics=jax.tree.map(jnp.add, total.metrics, part.metrics),
    )


@dataclass(frozen=True)
class Training:
    recipe: Recipe
    network: Network
    learning_rate: optax.Schedule
    update: WeightUpdate
    repeats: bool = False
    """Whether a step is repeated where batch norm's means were far, instead of each norm's sums."""

    def start(self) -> State:
        """The state before the first step, in portable form."""
        params, stats = self.network.initial()
        return State(jnp.zeros((), jnp.int32), params, stats, optim.zero_slots(self.update.rule, params))

    def dispatch(self, state: State, batches: Batch) -> tuple[State, Metrics]:
        """Steps one after the other, over the leading axis of `batches`; metrics have that axis too."""
        if is_cpu(self.network.mesh):
            return self._unrolled(state, batches)
        return lax.scan(self.until_near if self.repeats else self.train_one, state, batches)

    def train_one(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        with links.one_step():
            share, _ = self._accumulated(state, batch)
            return self._updated(state, share)

    def until_near(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """`train_one` about the moving means; again about the means just found where one of them was far on any chip,
        which is seldom. An attempt that is to be repeated changes nothing: the update writes what was there before."""

        def attempt(before: _Attempt) -> _Attempt:
            share, found = self._accumulated(before.state, batch, before.about)
            new, metrics = self._updated(before.state, share)
            again = (metrics.pop(_FAR) > 0) & (before.tried < _ATTEMPTS - 1)
            state = jax.tree.map(partial(jnp.where, again), before.state, new)
            return _Attempt(again, before.tried + 1, state, found, metrics)

        expected = lax.pcast(self.network.expected_means(*self.update.trees(state)), AXES, to="varying")
        none = _Attempt(jnp.bool_(True), jnp.int32(0), state, [expected] * self.recipe.accumulate, {})
        shapes = jax.eval_shape(attempt, none).metrics
        no_metrics = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        last = lax.while_loop(lambda made: made.again, attempt, none._replace(metrics=no_metrics))
        return last.state, last.metrics

    def _updated(self, state: State, share: _Share) -> tuple[State, Metrics]:
        rate = jnp.asarray(self.learning_rate(state.step), jnp.float32)
        updated = self.update(state, share.gradients, rate, others=(share.stats, share.metrics))
        means, metrics = updated.others
        stats = self.update.stats_of(join(means, share.others)) if _has_any(share.others) else means
        state = replace(updated.state, step=state.step + 1, stats=self._kept(state, stats))
        return averaged(self.recipe, state), {**metrics, **updated.metrics, "learning_rate": rate}

    def _kept(self, before: State, stats: Any) -> Any:
        """The statistics after a step, of which the frozen ones are exactly as they were before."""
        model = self.recipe.model
        if not keeps_any(model):
            return stats
        old, new = (self.update.trees(state)[1] for state in (before, replace(before, stats=stats)))
        return self.update.stats_of(kept_statistics(model, old, new))

    def _accumulated(self, state: State, batch: Batch, about: list[Means] | None = None) -> tuple[_Share, list[Means]]:
        """What `_backward` gives for the whole batch, from one part after the other. Each part starts from the same
        statistics, and batch norm's spans do not cross parts, so the mean of their statistics is that of the whole.
        `about` has the means that each part expects, as spans of their own have means of their own."""
        batch = self.network.with_keys(batch, state.step)
        count = self.recipe.accumulate
        expected: Sequence[Means | None] = about or [None] * count
        if count == 1:
            share, means = self._backward(state, batch, expected[0])
            return share, [means]
        self._check_parts(len(batch["label"]))
        parts = jax.tree.map(lambda whole: whole.reshape(count, -1, *whole.shape[1:]), batch)
        total, means = self._backward(state, jax.tree.map(lambda part: part[0], parts), expected[0])
        found = [means]
        for k in range(1, count):  # each waits for the one before, whose activations are then free
            part, total = lax.optimization_barrier((jax.tree.map(lambda p, k=k: p[k], parts), total))
            share, means = self._backward(state, part, expected[k])
            total = _added(total, share)
            found.append(means)
        return total._replace(stats=jax.tree.map(lambda s: s / count, total.stats)), found

    def _check_parts(self, images: int) -> None:
        """Whether a chip's images can be cut into parts of whole batch-norm spans."""
        count, span = self.recipe.accumulate, self.recipe.model.norm_span
        if images % (count * span):
            raise UserError(
                f"accumulate={count} cuts the {images} images of a chip into parts of {images / count:g}, which are no "
                f"whole batch-norm spans of model.norm_span={span}; lower one of the two"
            )

    def _backward(self, state: State, batch: Batch, about: Means | None) -> tuple[_Share, Means]:
        """This chip's share for these images, and the means that batch norm has found where `about` has those that are
        expected; the metrics then say too whether one was far."""

        params, before = self.update.trees(state)

        def objective(params: Any) -> tuple[jax.Array, _Forward]:
            params = without_gradients(self.recipe.model, params)
            means: Means = {}
            far: Metrics = {}
            if about is None:
                logits, stats = self.network.forward(params, before, batch, train=True)
            else:
                logits, stats, means, any_far = self.network.attempt(params, before, batch, about=about)
                far = {_FAR: any_far.astype(jnp.float32)}
            losses = training_losses(self.recipe, logits, batch)
            right = hits(logits, batch["label"], 1)
            metrics = {"loss": losses.sum(), "top1": right.sum(dtype=jnp.float32)}
            metrics = {name: total / self.recipe.batch_global for name, total in metrics.items()}
            return metrics["loss"], _Forward(stats, metrics | far, means)

        # Parameters that vary by chip have gradients that do: summing them over the torus is then ours to do.
        varying = lax.pcast(params, AXES, to="varying")
        gradients, passed = jax.grad(objective, has_aux=True)(varying)
        of_chips, others = split(passed.stats)
        if not _has_any(others):
            of_chips = self.update.stats_of(of_chips)
        of_chips = jax.tree.map(lambda s: s / self.network.mesh.size, of_chips)
        return _Share(gradients, of_chips, passed.metrics, others), passed.means

    def _unrolled(self, state: State, batches: Batch) -> tuple[State, Metrics]:
        """`lax.scan` without its loop: XLA:CPU brings convolutions into the form that its fast kernels know only
        outside of loops, and those left inside run some thirty times slower (docs/decisions/001)."""
        metrics = []
        for i in range(len(batches["label"])):
            state, of_step = self.train_one(state, jax.tree.map(lambda b, i=i: b[i], batches))
            metrics.append(of_step)
        return state, jax.tree.map(lambda *values: jnp.stack(values), *metrics)
