"""A whole training run, in the order it happens: data → torus → step → input started → compile → train and evaluate
in turns → summary. Everything random is decided by (seed, step), so this file has no state of its own but the
step.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import jax

from podium.data import decode
from podium.data.dataset.shards import ImageSet
from podium.data.input.cache import budget_bytes
from podium.data.input.loader import TrainLoader
from podium.data.input.prefetch import Feed, local_rows
from podium.errors import Stopped, UserError
from podium.host.files import reporting
from podium.host.malloc import keep
from podium.host.versions import versions
from podium.mesh import build_mesh, find_devices, is_cpu
from podium.processes import agree
from podium.processes.join import is_first
from podium.recipe.reading import to_dict
from podium.recipe.schema import Recipe
from podium.recipe.torus import Torus, lay_out
from podium.report import events
from podium.report.files import JsonLines, TensorBoard
from podium.step.network import ModelFactory
from podium.step.programs import Step, batch_shapes, build_step
from podium.step.state import State
from podium.train import run_directory
from podium.train.checkpoint import Checkpoints, NotFinite, weights_hash
from podium.train.evaluate import Evaluator
from podium.train.meter import DISPATCHES_AHEAD, Meter
from podium.train.reduction_choice import settle
from podium.train.stop import Interrupt, Vote
from podium.train.watchdog import Watchdog

_SLOW_DISK = 20e6  # bytes a second, until a checkpoint has been written and timed


def train_recipe(
    recipe: Recipe,
    data: str | Path,
    run: str | Path,
    *,
    make_model: ModelFactory | None = None,
    listener: events.Listener | None = None,
    from_step: int | None = None,
    max_minutes: float | None = None,
    stall_minutes: float = 10.0,
) -> events.Summary:
    """Trains `recipe` on the prepared directory `data`, keeping everything of the run in the directory `run`.

    A `run` that was stopped goes on where its last checkpoint is, or with `from_step` where an earlier one is, from
    there perhaps on another course. `make_model(rngs)` trains a network of your own. A signal or `max_minutes` ends
    the run early with a checkpoint and the exception `Stopped`; a run that does not move for `stall_minutes` ends the
    process.
    """
    with contextlib.ExitStack() as held:
        return _train(recipe, data, Path(run), held, make_model, listener, from_step, max_minutes, stall_minutes)


def _train(
    recipe: Recipe, data: str | Path, run: Path, held: contextlib.ExitStack, make_model: ModelFactory | None,
    listener: events.Listener | None, from_step: int | None, max_minutes: float | None, stall_minutes: float,
) -> events.Summary:  # fmt: skip
    recipe, images, validation = agree.everywhere(lambda: _open(recipe, data))
    agree.check_same({"recipe": to_dict(recipe), "data": images.content_hash, "versions": versions()})
    shape, devices = find_devices(recipe.torus)
    torus = lay_out(shape, recipe.batch_global, recipe.model.norm_span)
    mesh = build_mesh(torus, devices)
    if is_cpu(mesh):
        keep()
    note = (listener or events.Listener()).note
    params = jax.eval_shape(build_step(recipe, mesh, make_model).init).params  # a network that cannot be: no run yet
    changes = agree.on_first(lambda: run_directory.claim(run, recipe, images, from_step))
    agree.on_first(reporting(run / "lock")(lambda: held.enter_context(run_directory.hold(run, note))))
    checkpoints = agree.everywhere(lambda: Checkpoints(run))
    if not changes and from_step == agree.on_first(lambda: run_directory.went_back_to(run)):
        from_step = None  # the same command again, after a restart: it has gone back already and now goes on
    first_step = agree.on_first(lambda: checkpoints.first_step(from_step, note))
    if changes or from_step is not None:
        record = partial(run_directory.record_changes, run, recipe, first_step, changes, from_step)
        agree.on_first(reporting(run / "run.json")(record))
    recipe = settle(recipe, mesh, params, run)
    step = build_step(recipe, mesh, make_model)

    with (
        Interrupt(max_minutes) as interrupt,
        Watchdog(run, stall_minutes) as watchdog,
        checkpoints,
        contextlib.closing(_listeners(listener or events.Listener(), run, first_step, recipe)) as listener,
    ):
        budget = budget_bytes(recipe.data.cache_gb) // agree.processes_on_this_host()
        loader = TrainLoader(images, recipe, local_rows(step.train_batches, recipe.batch_global), budget * 3 // 4)
        dispatches = range(first_step, recipe.train_steps, recipe.steps_per_dispatch)
        with (
            contextlib.closing(loader),
            Feed(loader, dispatches, step.train_batches, recipe.batch_global) as feed,  # fills while we compile
        ):
            loader.read_ahead(first_step)
            state = restored(checkpoints, first_step, step, recipe, listener.note) if first_step else step.init()
            first_write_seconds = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / _SLOW_DISK
            listener.started(_started(recipe, run, torus, mesh, state, images, validation, first_step, loader))
            if changes:
                listener.note(f"goes on with {', '.join(changes)}")
            evaluator = Evaluator(recipe, step, validation, budget // 4)
            programs = _compile(recipe, step, state, listener)
            agree.gather("compiled")  # gloo's first collective waits only 30 s for a process that still compiles

            def save(after: int) -> None:
                watchdog.moved(f"saving after step {after}")
                try:
                    checkpoints.save(step.portable(state), after, recipe, images.content_hash)
                except NotFinite:
                    raise gone_wrong(f"a weight is not finite after step {after}") from None

            def evaluate(after: int, owed: bool = False) -> events.Evaluated:
                """Of a state that is saved, so that a signal may stop it. A restart evaluates first, whatever the time
                limit: one too short for it would never end."""

                def between_batches() -> None:
                    watchdog.moved(f"evaluating after step {after}")
                    if jax.process_count() == 1 and (reason := interrupt.signal() if owed else interrupt.wanted()):
                        stop(reason, after)

                epoch = after / steps_per_epoch(recipe)
                evaluation = evaluator(state, after, epoch, programs.evaluate, between_batches)
                listener.evaluated(evaluation)
                return evaluation

            def stop(reason: str, after: int) -> NoReturn:
                checkpoints.wait()
                raise Stopped(reason, after, str(run))

            def gone_wrong(what: str) -> UserError:
                rate = f"optimizer.learning_rate={recipe.optimizer.learning_rate:g}"
                return UserError(f"{what}; lower {rate} or lengthen schedule.warmup_epochs; {checkpoints.way_back()}")

            evaluations, saves, vote = evaluation_steps(recipe), checkpoint_steps(recipe), Vote(mesh)
            evaluation = evaluate(first_step, owed=True) if first_step in evaluations else None
            meter = Meter(recipe, listener, first_step, gone_wrong)
            for at in dispatches:
                batch = meter.next_batch(feed)
                with jax.transfer_guard("disallow"):
                    state, metrics = programs.train(state, batch)
                done = at + recipe.steps_per_dispatch
                watchdog.moved(f"training, step {done}")
                meter.sent(done, metrics)
                checkpoints.check()
                evaluating = done in evaluations
                # A wish counts only so many dispatches later; an evaluation must not come in between.
                until_it_counts = range(done, done + vote.dispatches_ahead * recipe.steps_per_dispatch + 1)
                evaluates_soon = not evaluations.isdisjoint(until_it_counts)
                evaluation_seconds = evaluation.seconds if evaluation and evaluates_soon else 0.0
                # What was sent must end first, and so must what is sent until we ask again and all have heard.
                dispatches_left = DISPATCHES_AHEAD + 1 + vote.dispatches_ahead
                writing_seconds = 2 * (checkpoints.slowest_seconds or first_write_seconds)
                ending_seconds = writing_seconds + dispatches_left * meter.dispatch_seconds()
                reason = vote(interrupt.wanted(ending_seconds + evaluation_seconds))
                if done in saves or evaluating or reason:
                    meter.settle()
                    save(done)
                    if reason and done < recipe.train_steps:
                        stop(reason, done)
                    if evaluating:
                        evaluation = evaluate(done)
                    meter.resume()
            meter.settle()
        checkpoints.wait()
        assert evaluation is not None  # the last step is always evaluated
        summary = meter.summary(evaluation, programs.compile_seconds, run, weights_hash(state))
        agree.on_first(reporting(run / "summary.json")(lambda: run_directory.finish(run, asdict(summary))))
        listener.finished(summary)
    return summary


def _open(recipe: Recipe, data: str | Path) -> tuple[Recipe, ImageSet, ImageSet]:
    """The images to train on and those to evaluate on, and the recipe that knows how many they are."""
    images, validation = ImageSet.open(data, "train"), ImageSet.open(data, "validation")
    return recipe.for_data(len(images.classes), len(images), len(validation)), images, validation


def restored(checkpoints: Checkpoints, after: int, step: Step, recipe: Recipe, note: Callable[[str], None]) -> State:
    """The state saved at step `after`; its momenta only if they mean the same to the recipe's optimizer."""
    state = checkpoints.restore(after, step)
    theirs, ours = (table["optimizer"] for table in (checkpoints.about(after)["recipe"], to_dict(recipe)))
    if all(theirs.get(key) == ours.get(key) for key in ("name", "variant")):
        return state
    note("momenta begin at zero, as another optimizer has made those of the checkpoint")
    return replace(state, momenta=step.init().momenta)


def _listeners(listener: events.Listener, run: Path, first_step: int, recipe: Recipe) -> events.Listener:
    """One process speaks for all of them."""
    if not is_first():
        return events.Listener()
    lines = JsonLines(run, first_step, evaluates_first=first_step in evaluation_steps(recipe))
    return events.Everyone(listener, lines, TensorBoard(run, first_step))


def steps_per_epoch(recipe: Recipe) -> float:
    return recipe.data.train_images / recipe.batch_global


def evaluation_steps(recipe: Recipe) -> set[int]:
    """The ends of dispatches nearest to every `evaluate_every_epochs`, and the end."""
    every = max(1.0, recipe.evaluate_every_epochs * steps_per_epoch(recipe) / recipe.steps_per_dispatch)
    count = int(recipe.train_steps / recipe.steps_per_dispatch / every)
    ends = {round(k * every) * recipe.steps_per_dispatch for k in range(1, count + 1)}
    return {end for end in ends if end < recipe.train_steps} | {recipe.train_steps}


def checkpoint_steps(recipe: Recipe) -> range:
    """Every half of `max_lost_steps`, in whole dispatches. A write ends before the next begins, so that at any moment a
    checkpoint not older than both halves is whole."""
    every = max(1, recipe.max_lost_steps // 2 // recipe.steps_per_dispatch) * recipe.steps_per_dispatch
    return range(every, recipe.train_steps, every)


@dataclass(frozen=True)
class _Programs:
    train: Any
    evaluate: Any
    compile_seconds: float


def _compile(recipe: Recipe, step: Step, state: State, listener: events.Listener) -> _Programs:
    """Both programs, ahead of the first step: compile time is then told apart, and nothing recompiles later."""
    began = time.perf_counter()

    batch = batch_shapes(recipe, step.train_batches, recipe.steps_per_dispatch)
    train = step.train.lower(state, batch).compile()
    eval_batch = batch_shapes(recipe, step.eval_batches, steps=None)
    evaluate = step.evaluate.lower(state, step.zero_totals(), eval_batch).compile()
    seconds = time.perf_counter() - began
    listener.note(f"compiled in {seconds:.1f} s")
    return _Programs(train, evaluate, seconds)


def _started(
    recipe: Recipe, run: Path, torus: Torus, mesh: Any, state: State,
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
