"""A whole training run, in the order it happens: data → torus → step → input started → compile → train and evaluate
in turns → summary. Everything random is decided by (seed, step), so this file has no state of its own but the
step.

The loop never waits for the device it feeds: metrics of a dispatch are read when two later ones have been sent.
"""

import contextlib
import math
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from podium import topology
from podium.data import decode
from podium.data.cache import budget_bytes
from podium.data.feed import Feed, local_rows
from podium.data.loader import TrainLoader
from podium.data.shards import ImageSet
from podium.errors import UserError
from podium.launch import agree
from podium.launch.join import is_first
from podium.recipe import Recipe, to_dict
from podium.report import events
from podium.report.files import JsonLines, TensorBoard
from podium.train import run_directory
from podium.train.checkpoint import Checkpoints, shaped, versions
from podium.train.evaluate import Evaluator
from podium.train.reduction import settle
from podium.train.step import Metrics, ModelFactory, State, Step, build_step

_DISPATCHES_AHEAD = 2


def train_recipe(
    recipe: Recipe,
    data: str | Path,
    run: str | Path,
    *,
    make_model: ModelFactory | None = None,
    listener: events.Listener | None = None,
) -> events.Summary:
    """Trains `recipe` on the prepared directory `data`, keeping everything of the run in the directory `run`.

    A `run` that was stopped goes on where its last checkpoint is. `make_model(rngs)` trains a network of your own.
    """
    images, validation = ImageSet.open(data, "train"), ImageSet.open(data, "validation")
    recipe = recipe.for_data(len(images.classes), len(images), len(validation))
    shape, devices = topology.find_devices(recipe.torus)
    torus = topology.lay_out(shape, recipe.batch_global, recipe.model.norm_span)
    mesh = torus.mesh(devices)
    run = Path(run)
    agree.check_same({"recipe": to_dict(recipe), "data": images.content_hash, "versions": versions()})
    agree.on_first(lambda: run_directory.claim(run, recipe, images))
    recipe = settle(recipe, mesh, jax.eval_shape(build_step(recipe, mesh, make_model).init).params, run)
    step = build_step(recipe, mesh, make_model)

    with (
        Checkpoints(run) as checkpoints,
        contextlib.closing(_listeners(listener or events.Listener(), run)) as listener,
    ):
        first_step = checkpoints.latest() or 0
        budget = budget_bytes(recipe.data.cache_gb) // agree.processes_on_this_host()
        loader = TrainLoader(images, recipe, local_rows(step.train_batches, recipe.batch_global), budget * 3 // 4)
        dispatches = range(first_step, recipe.train_steps, recipe.steps_per_dispatch)
        with (
            contextlib.closing(loader),
            Feed(loader, dispatches, step.train_batches, recipe.batch_global) as feed,  # fills while we compile
        ):
            loader.read_ahead(first_step)
            state = step.init()
            if first_step:
                like = shaped(jax.eval_shape(step.portable, state), step.everywhere)
                state = step.resumed(checkpoints.restore(first_step, like))
            listener.started(_started(recipe, run, torus, mesh, state, images, validation, first_step, loader))
            evaluator = Evaluator(recipe, step, validation, budget // 4)
            programs = _compile(recipe, step, state, loader, listener)
            meter = _Meter(recipe, listener, first_step)
            evaluation = None
            for at in dispatches:
                batch = meter.next_batch(feed)
                with jax.transfer_guard("disallow"):
                    state, metrics = programs.train(state, batch)
                done = at + recipe.steps_per_dispatch
                meter.sent(done, metrics)
                if done in evaluation_steps(recipe):
                    meter.settle()
                    evaluation = evaluator(state, done, done / steps_per_epoch(recipe), programs.evaluate)
                    listener.evaluated(evaluation)
                    checkpoints.save(step.portable(state), done, recipe, images.content_hash)
                    meter.resume()
            meter.settle()
            if evaluation is None:  # resumed at the very end
                evaluation = evaluator(state, recipe.train_steps, recipe.epochs, programs.evaluate)
        checkpoints.wait()
        summary = meter.summary(evaluation, programs.compile_seconds, run)
        agree.on_first(lambda: run_directory.finish(run, asdict(summary)))
        listener.finished(summary)
    return summary


def _listeners(listener: events.Listener, run: Path) -> events.Listener:
    """One process speaks for all of them."""
    return events.Everyone(listener, JsonLines(run), TensorBoard(run)) if is_first() else events.Listener()


def steps_per_epoch(recipe: Recipe) -> float:
    return recipe.data.train_images / recipe.batch_global


def evaluation_steps(recipe: Recipe) -> set[int]:
    """The ends of dispatches nearest to every `evaluate_every_epochs`, and the end."""
    every = max(1, round(recipe.evaluate_every_epochs * steps_per_epoch(recipe) / recipe.steps_per_dispatch))
    return {
        *range(every * recipe.steps_per_dispatch, recipe.train_steps, every * recipe.steps_per_dispatch),
        recipe.train_steps,
    }


@dataclass(frozen=True)
class _Programs:
    train: Any
    evaluate: Any
    compile_seconds: float


def _compile(recipe: Recipe, step: Step, state: State, loader: TrainLoader, listener: events.Listener) -> _Programs:
    """Both programs, ahead of the first step: compile time is then told apart, and nothing recompiles later."""
    began = time.perf_counter()

    def shapes(batch: dict[str, np.ndarray], sharding: jax.sharding.NamedSharding) -> Any:
        axis = len(sharding.spec) - 1
        return {
            name: jax.ShapeDtypeStruct(
                (*a.shape[:axis], recipe.batch_global, *a.shape[axis + 1 :]), a.dtype, sharding=sharding
            )
            for name, a in batch.items()
        }

    train_batch = loader.new_batch()
    eval_batch = {name: train_batch[name][0] for name in ("image", "label")}
    train = step.train.lower(state, shapes(train_batch, step.train_batches)).compile()
    totals = step.zero_totals()
    evaluate = step.evaluate.lower(state, totals, shapes(eval_batch, step.eval_batches)).compile()
    seconds = time.perf_counter() - began
    listener.note(f"compiled in {seconds:.1f} s")
    return _Programs(train, evaluate, seconds)


@dataclass
class _Meter:
    """Reads metrics behind the devices' backs, checks the loss, and keeps the time."""

    recipe: Recipe
    listener: events.Listener
    first_step: int
    _pending: deque[tuple[int, Metrics]] = field(default_factory=deque)
    _window: list[dict[str, np.ndarray]] = field(default_factory=list)
    _train_seconds: float = 0.0
    _eval_seconds: float = 0.0
    _wait_seconds: float = 0.0
    _window_began: tuple[float, float] = (0.0, 0.0)
    _steps_done: int = 0

    def __post_init__(self) -> None:
        self._clock = time.perf_counter()

    def next_batch(self, feed: Feed) -> Any:
        """The next batch. Only a wait while the devices have nothing left to do counts as waiting for input."""
        if not feed.ready() and self._pending:
            jax.block_until_ready(self._pending[-1][1])
        began = time.perf_counter()
        batch = next(feed)
        self._wait_seconds += time.perf_counter() - began
        return batch

    def sent(self, step: int, metrics: Metrics) -> None:
        self._pending.append((step, metrics))
        while len(self._pending) > _DISPATCHES_AHEAD:
            self._read()

    def settle(self) -> None:
        """Waits for everything sent, before an evaluation or the end."""
        while self._pending:
            self._read()
        self._train_seconds = self._now()
        self._paused = time.perf_counter()

    def resume(self) -> None:
        paused = time.perf_counter() - self._paused
        self._eval_seconds += paused
        self._clock += paused

    def summary(self, evaluation: events.Evaluated, compile_seconds: float, run: Path) -> events.Summary:
        seconds = max(self._train_seconds, 1e-9)
        return events.Summary(
            accuracy=evaluation.top1,
            top5=evaluation.top5,
            images_per_second=self._steps_done * self.recipe.batch_global / seconds,
            train_seconds=self._train_seconds + self._eval_seconds + evaluation.seconds,
            compile_seconds=compile_seconds,
            input_bound=self._wait_seconds / seconds,
            steps=self.recipe.train_steps,
            run=str(run),
        )

    def _now(self) -> float:
        return time.perf_counter() - self._clock

    def _read(self) -> None:
        step, metrics = self._pending.popleft()
        values = jax.device_get(metrics)
        for i, loss in enumerate(values["loss"]):
            if not math.isfinite(loss):
                at = step - len(values["loss"]) + i + 1
                raise UserError(
                    f"the loss is {loss} at step {at}; lower optimizer.learning_rate="
                    f"{self.recipe.optimizer.learning_rate:g} or lengthen schedule.warmup_epochs"
                )
        self._window.append(values)
        self._steps_done += len(values["loss"])
        if sum(len(v["loss"]) for v in self._window) >= self.recipe.log_every_steps or step == self.recipe.train_steps:
            self._report(step)

    def _report(self, step: int) -> None:
        now, mean = (
            self._now(),
            {name: np.concatenate([v[name] for v in self._window]) for name in self._window[0]},
        )
        seconds = max(now - self._window_began[0], 1e-9)
        rate = len(mean["loss"]) * self.recipe.batch_global / seconds
        left = (self.recipe.train_steps - step) / max(1, step - self.first_step) * (now + self._eval_seconds)
        self.listener.progress(
            events.Progress(
                step=step,
                epoch=step / steps_per_epoch(self.recipe),
                loss=float(mean["loss"].mean()),
                top1=float(mean["top1"].mean()),
                learning_rate=float(mean["learning_rate"][-1]),
                images_per_second=rate,
                input_bound=min(1.0, (self._wait_seconds - self._window_began[1]) / seconds),
                eta_seconds=left,
            )
        )
        self._window, self._window_began = [], (now, self._wait_seconds)


def _started(
    recipe: Recipe, run: Path, torus: topology.Torus, mesh: Any, state: State,
    images: ImageSet, validation: ImageSet, first_step: int, loader: TrainLoader,
) -> events.Started:  # fmt: skip
    platform = mesh.devices.flat[0].platform
    return events.Started(
        run=str(run),
        recipe=recipe.name,
        torus=str(torus),
        platform="simulated" if platform == "cpu" else platform.upper(),
        steps=recipe.train_steps,
        first_step=first_step,
        train_images=len(images),
        validation_images=len(validation),
        classes=len(images.classes),
        batch_global=recipe.batch_global,
        norm_span=recipe.model.norm_span,
        parameters=sum(p.size for p in jax.tree.leaves(state.params)),
        cache=loader.cache.level,
        decoder=decode.backend_reason(),
    )
