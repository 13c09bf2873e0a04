"""The training loop. `TrainingLoop.run()` is the order in which things happen: the input starts to fill, the programs
compile, then dispatch after dispatch, with a checkpoint, an evaluation or an early stop in between. Everything random
is decided by (seed, step), so the loop has no state of its own but the step's.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import jax

from podium.data import decode
from podium.data.input.loader import TrainLoader
from podium.data.input.prefetch import Feed, local_rows
from podium.errors import Stopped, UserError
from podium.processes import agree
from podium.processes.join import is_first
from podium.recipe.reading import to_dict
from podium.recipe.schema import Recipe
from podium.report import events
from podium.step.programs import Step, batch_shapes
from podium.step.state import State
from podium.step.work import flops
from podium.train.checkpoint import Checkpoints, NotFinite, weights_hash
from podium.train.data_warnings import data_warnings
from podium.train.evaluate import Evaluator
from podium.train.initial_weights import first_state
from podium.train.meter import Meter
from podium.train.setup import Setup
from podium.train.stop import Pace, Stopper, Vote, reserve_seconds
from podium.train.watchdog import Watchdog


class TrainingLoop:
    """Trains what `setup` describes, from its first step to its last."""

    def __init__(self, setup: Setup, *, stopper: Stopper, watchdog: Watchdog, listener: events.Listener) -> None:
        self._setup, self._recipe, self._step = setup, setup.recipe, setup.step
        self._checkpoints = setup.checkpoints
        self._stopper, self._watchdog, self._listener = stopper, watchdog, listener
        self._vote = Vote(setup.mesh)
        self._meter = Meter(setup.recipe, listener, setup.first_step)
        self._evaluations, self._saves = evaluation_steps(setup.recipe), checkpoint_steps(setup.recipe)
        self._evaluation: events.Evaluated | None = None
        self._state: State
        self._evaluator: Evaluator
        self._programs: _Programs

    def run(self) -> events.Summary:
        with self._advice_if_not_finite(), self._input() as (loader, batches):  # fills while the programs compile
            self._start(loader.cache.level)
            for first in self._dispatches():
                done = first + self._recipe.steps_per_dispatch
                self._dispatch(batches, done)
                evaluates, reason = done in self._evaluations, self._stop_reason(done)
                if reason or evaluates or done in self._saves:
                    self._meter.drain()
                    self._save(done)
                    if reason and done < self._recipe.train_steps:
                        self._stop(reason, done)
                    if evaluates:
                        self._evaluate(done)
                    self._meter.resume()
            self._meter.drain()
        self._checkpoints.wait()
        return self._summary()

    @contextlib.contextmanager
    def _advice_if_not_finite(self) -> Iterator[None]:
        try:
            yield
        except NotFinite as found:
            rate = f"optimizer.learning_rate={self._recipe.optimizer.learning_rate:g}"
            advice = f"lower {rate} or lengthen schedule.warmup_epochs"
            raise UserError(f"{found}; {advice}; {self._checkpoints.way_back()}") from None

    @contextlib.contextmanager
    def _input(self) -> Iterator[tuple[TrainLoader, Feed]]:
        recipe, sharding, packed = self._recipe, self._step.train_batches, self._step.packed
        rows = local_rows(sharding, recipe.batch_global)
        loader = TrainLoader(self._setup.images, recipe, rows, budget=self._setup.budgets.train_bytes)
        with (
            contextlib.closing(loader),
            Feed(loader, self._dispatches(), sharding, batch_global=recipe.batch_global, packed=packed) as batches,
        ):
            loader.read_ahead(self._setup.first_step)
            yield loader, batches

    def _dispatches(self) -> range:
        """The first step of every dispatch."""
        return range(self._setup.first_step, self._recipe.train_steps, self._recipe.steps_per_dispatch)

    def _start(self, cache_level: str) -> None:
        """Gets the state, compiles, and makes the evaluation that a restart may owe."""
        setup, first_step = self._setup, self._setup.first_step
        if first_step:
            note = self._listener.note
            self._state = restored(self._checkpoints, first_step, self._step, recipe=self._recipe, note=note)
        else:
            self._state = first_state(self._step, setup.weights)
        self._listener.started(_started(setup, jax.eval_shape(self._step.portable, self._state), cache_level))
        if is_first() and not first_step:  # which reads the labels of all shards: one process does, and once
            for warning in data_warnings(self._recipe, setup.images, setup.validation):
                self._listener.note(warning)
        if setup.changes:
            self._listener.note(f"resumes with {', '.join(setup.changes)}")
        budget = setup.budgets.validation_bytes
        self._evaluator = Evaluator(self._recipe, self._step, setup.validation, cache_budget_bytes=budget)
        self._programs = _compile(self._recipe, self._step, self._state, first_step=first_step)
        self._listener.note(f"compiled in {self._programs.compile_seconds:.1f} s")
        agree.meet()  # gloo's first collective waits only 30 s for a process that still compiles
        if first_step in self._evaluations:
            self._evaluate(first_step, owed=True)
        self._meter.start()

    def _dispatch(self, batches: Feed, done: int) -> None:
        batch = self._meter.next_batch(batches)
        with jax.transfer_guard("disallow"):
            self._state, metrics = self._programs.train[self._recipe.size_at(done - 1)](self._state, batch)
        self._watchdog.moved(f"training, step {done}")
        self._meter.sent(done, metrics)
        self._checkpoints.check()

    def _stop_reason(self, done: int) -> str | None:
        """Why the run stops after step `done`, if it does; all processes get the same answer."""
        pace = Pace(
            dispatch_seconds=self._meter.dispatch_seconds(),
            write_seconds=self._checkpoints.write_seconds(self._state),
            evaluation_seconds=self._evaluation.seconds if self._evaluation else 0.0,
        )
        reserve = reserve_seconds(
            pace,
            done=done,
            evaluations=self._evaluations,
            steps_per_dispatch=self._recipe.steps_per_dispatch,
            vote_dispatches=self._vote.dispatches_ahead,
        )
        return self._vote(self._stopper.requested(reserve))

    def _save(self, after: int) -> None:
        self._watchdog.moved(f"saving after step {after}")
        state = self._step.portable(self._state)
        self._checkpoints.save(state, after, recipe=self._recipe, data_hash=self._setup.images.content_hash)

    def _stop(self, reason: str, after: int) -> NoReturn:
        self._checkpoints.wait()
        raise Stopped(reason, after, str(self._setup.run))

    def _evaluate(self, after: int, owed: bool = False) -> None:
        """Evaluates a state that is saved, so that a signal may stop it."""
        epoch, between = after / steps_per_epoch(self._recipe), partial(self._between_batches, after, owed)
        evaluation = self._evaluator(
            self._state, after, epoch, program=self._programs.evaluate, between_batches=between
        )
        self._evaluation = evaluation
        if is_first():
            self._checkpoints.note_accuracy(after, evaluation.top1)
        self._listener.evaluated(evaluation)

    def _between_batches(self, after: int, owed: bool) -> None:
        """A restart evaluates first, whatever the time limit: a run with one too short for it would never end."""
        self._watchdog.moved(f"evaluating after step {after}")
        reason = self._stopper.signal() if owed else self._stopper.requested()
        if reason and jax.process_count() == 1:
            self._stop(reason, after)

    def _summary(self) -> events.Summary:
        assert self._evaluation is not None  # the last step is always evaluated
        totals = self._meter.totals()
        return events.Summary(
            accuracy=self._evaluation.top1,
            top5=self._evaluation.top5,
            images_per_second=totals.images_per_second,
            train_seconds=totals.seconds,
            compile_seconds=self._programs.compile_seconds,
            input_bound=totals.input_bound,
            steps=self._recipe.train_steps,
            weights_hash=weights_hash(self._state),
            run=str(self._setup.run),
            train_flops=self._programs.train_flops,
        )


def steps_per_epoch(recipe: Recipe) -> float:
    return recipe.data.train_images / recipe.batch_global


def evaluation_steps(recipe: Recipe) -> set[int]:
    """The ends of dispatches nearest to every `evaluate_every_epochs`, and the end."""
    every = max(1.0, recipe.evaluate_every_epochs * steps_per_epoch(recipe) / recipe.steps_per_dispatch)
    count = int(recipe.train_steps / recipe.steps_per_dispatch / every)
    ends = {round(k * every) * recipe.steps_per_dispatch for k in range(1, count + 1)}
    return {end for end in ends if end < recipe.train_steps} | {recipe.train_steps}


def checkpoint_steps(recipe: Recipe) -> range:
    """Every half of `max_lost_steps`, in whole dispatches. A write ends before the next starts, so that at any moment a
    checkpoint not older than both halves is whole."""
    every = max(1, recipe.max_lost_steps // 2 // recipe.steps_per_dispatch) * recipe.steps_per_dispatch
    return range(every, recipe.train_steps, every)


def restored(checkpoints: Checkpoints, after: int, step: Step, *, recipe: Recipe, note: Callable[[str], None]) -> State:
    """The state saved at step `after`; its slots only if they mean the same to the recipe's optimizer."""
    state = checkpoints.restore(after, step)
    theirs = agree.on_first(lambda: checkpoints.about(after)["recipe"]["optimizer"])
    ours = to_dict(recipe)["optimizer"]
    if all(theirs.get(key) == ours.get(key) for key in ("name", "variant")):
        return state
    note("momenta start at zero: those of the checkpoint belong to a different optimizer")
    return replace(state, slots=step.init().slots)


@dataclass(frozen=True)
class _Programs:
    train: dict[int, Any]
    """By the size of the images."""
    evaluate: Any
    compile_seconds: float
    train_flops: float
    """The work of all the run's steps."""


def _compile(recipe: Recipe, step: Step, state: State, *, first_step: int) -> _Programs:
    """All programs, ahead of the first step: compile time is then counted apart, and nothing recompiles later."""
    began = time.perf_counter()
    train: dict[int, Any] = {}
    work: dict[int, float] = {}
    ahead = recipe.sizes_from(min(first_step, recipe.train_steps - 1))
    for size in dict.fromkeys(recipe.data.train_sizes):
        traced = step.train.trace(state, batch_shapes(recipe, step, recipe.steps_per_dispatch, size=size))
        work[size] = flops(traced.jaxpr.jaxpr)
        if size in ahead:
            train[size] = traced.lower().compile()
    eval_batch = batch_shapes(recipe, step, steps=None)
    evaluate = step.evaluate.lower(state, step.zero_totals(), eval_batch).compile()
    dispatches = range(0, recipe.train_steps, recipe.steps_per_dispatch)
    train_flops = sum(work[recipe.size_at(first)] for first in dispatches)
    return _Programs(train, evaluate, time.perf_counter() - began, train_flops)


def _started(setup: Setup, portable: State, cache_level: str) -> events.Started:
    recipe, platform = setup.recipe, setup.mesh.devices.flat[0].platform
    return events.Started(
        run=str(setup.run),
        recipe=recipe.name,
        torus=str(setup.torus),
        platform="simulated" if platform == "cpu" else platform.upper(),
        steps=recipe.train_steps,
        first_step=setup.first_step,
        train_images=len(setup.images),
        validation_images=len(setup.validation),
        classes=len(setup.images.classes),
        batch_global=recipe.batch_global,
        norm_span=recipe.model.norm_span,
        parameters=sum(p.size for p in jax.tree.leaves(portable.params)),
        cache=cache_level,
        decoder=decode.backend_reason(),
        label_smoothing=recipe.label_smoothing,
    )
