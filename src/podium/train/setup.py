"""All that is decided before a run's first step, in order: the images, the mesh, the network, the run directory and its
lock, the checkpoint to resume from, the reduction, the compiled step's programs. The processes of a run agree on each,
and a mistake in one ends all of them before anything is written.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from podium.data.dataset.shards import ImageSet
from podium.data.input.cache import CacheBudgets, divide_budget
from podium.data.input.loader import training_share
from podium.data.input.order import evaluation_share
from podium.data.input.prefetch import local_rows
from podium.exchange.weights import Chosen
from podium.host.accelerators import unused_accelerator
from podium.host.files import reporting
from podium.host.gpus import sum_in_one_order
from podium.host.malloc import keep
from podium.host.versions import versions
from podium.mesh import batch_sharding, build_mesh, find_devices, is_cpu, is_gpu
from podium.models import native
from podium.optim import OwnOptimizer
from podium.processes import agree
from podium.recipe.reading import to_dict
from podium.recipe.schema import Recipe
from podium.recipe.torus import Torus, lay_out
from podium.step.network import ModelFactory
from podium.step.programs import Step, build_step, network_shapes
from podium.train import run_directory
from podium.train.checkpoint import Checkpoints
from podium.train.initial_weights import find_start
from podium.train.reduction_choice import choose_reduction


@dataclass(frozen=True)
class Own:
    """What a program brings instead of the recipe's.

    >>> import optax
    >>> from podium import Own
    >>> own = Own(optimizer=optax.lion)  # for train_recipe(recipe, data, run, own=own)
    """

    make_model: ModelFactory | None = None
    """`make_model(rngs)`: an NNX module from normalised images to logits. `open_run` needs it again."""
    optimizer: OwnOptimizer | None = None
    """An optax transformation, or a function that makes one from the recipe's learning rate."""


@dataclass(frozen=True)
class Setup:
    """A run that is ready to start."""

    recipe: Recipe
    """The recipe with the data's numbers filled in and `reduce` chosen."""
    images: ImageSet
    validation: ImageSet
    budgets: CacheBudgets
    torus: Torus
    mesh: Mesh
    step: Step
    run: Path
    checkpoints: Checkpoints
    first_step: int
    """The step of the checkpoint that the run resumes from; 0 if it starts."""
    changes: tuple[str, ...]
    """What differs from the run as it was started."""
    weights: Chosen | None
    """What its first step starts with instead of random numbers."""


class AlreadyFinished(Exception):
    """There is nothing left to do: the run's summary."""

    def __init__(self, summary: dict[str, Any]) -> None:
        super().__init__("finished")
        self.summary = summary


@contextlib.contextmanager
def set_up(
    recipe: Recipe,
    data: str | Path,
    run: Path,
    *,
    weights: str | Path | None,
    from_step: int | None,
    own: Own,
    note: Callable[[str], None],
) -> Iterator[Setup]:
    """Prepares a run on the prepared directory `data`, and locks its directory while the `with` lasts."""
    opened = agree.everywhere(lambda: _open(recipe, data))
    recipe = opened.recipe
    agree.check_same({"recipe": to_dict(recipe), "data": opened.images.content_hash, "versions": versions()})
    shape, devices = find_devices(recipe.torus)
    torus = lay_out(shape, recipe.batch_global, recipe.model.norm_span)
    mesh = build_mesh(torus, devices)
    agree.everywhere(lambda: _open_shares(opened, mesh))
    if is_cpu(mesh):
        keep()
        if native.missing:
            note(f"XLA's convolutions serve, which are slower: {native.missing}")
    if warning := unused_accelerator(devices[0].platform):
        note(warning)
    if is_gpu(mesh) and recipe.deterministic:
        sum_in_one_order()
    shapes = network_shapes(recipe, mesh, own.make_model)  # a network that cannot be built leaves no run behind
    start = agree.everywhere(
        lambda: find_start(weights, run, recipe=recipe, shapes=shapes, classes=opened.images.classes, say=note)
    )
    origin = start.origin if start else None
    data_hash = opened.images.content_hash
    summary = agree.on_first(lambda: run_directory.finished(run, recipe, data_hash=data_hash, weights=origin))
    if summary and from_step is None:
        raise AlreadyFinished(summary)
    with contextlib.ExitStack() as held:
        claimed = run_directory.claimed(run, recipe, opened.images, from_step=from_step, weights=origin, say=note)
        changes = agree.on_first(lambda: held.enter_context(claimed))
        checkpoints = agree.everywhere(lambda: Checkpoints(run))
        first_step = _first_step(recipe, checkpoints, from_step=from_step, changes=changes, note=note)
        agree.on_first(reporting(run / "summary.json")(lambda: run_directory.reopen(run)))
        recipe = choose_reduction(recipe, mesh, shapes[0], run=run, note=note)
        yield Setup(
            recipe=recipe,
            images=opened.images,
            validation=opened.validation,
            budgets=divide_budget(recipe.data.cache_gb, agree.processes_on_this_host()),
            torus=torus,
            mesh=mesh,
            step=build_step(recipe, mesh, own.make_model, optimizer=own.optimizer),
            run=run,
            checkpoints=checkpoints,
            first_step=first_step,
            changes=tuple(changes),
            weights=start.tensors if start else None,
        )


@dataclass(frozen=True)
class _Opened:
    recipe: Recipe
    images: ImageSet
    validation: ImageSet


def _open(recipe: Recipe, data: str | Path) -> _Opened:
    """The images to train on and those to evaluate on, and the recipe that knows how many they are."""
    images, validation = (ImageSet.open(data, split, whole=False) for split in ("train", "validation"))
    return _Opened(recipe.for_data(len(images.classes), len(images), len(validation)), images, validation)


def _open_shares(opened: _Opened, mesh: Mesh) -> None:
    """Opens the shards of which this host will use images, so that a damaged one is told before the run begins."""
    recipe, batch_global = opened.recipe, opened.recipe.batch_global
    rows = local_rows(batch_sharding(mesh), batch_global)
    opened.images.need_ranges(training_share(opened.images, recipe, rows))
    opened.validation.need_ranges(evaluation_share(len(opened.validation), batch_global, rows))


def _first_step(
    recipe: Recipe,
    checkpoints: Checkpoints,
    *,
    from_step: int | None,
    changes: list[str],
    note: Callable[[str], None],
) -> int:
    """The step to resume from, after a run with changes, or one that goes back, has been written down as such."""
    run = checkpoints.run
    if not changes and from_step == agree.on_first(lambda: run_directory.went_back_to(run)):
        from_step = None  # the same command again, after a restart: it has gone back already and now resumes
    first_step = agree.on_first(lambda: checkpoints.first_step(from_step, note))
    if changes or from_step is not None:
        change = run_directory.Change(first_step, tuple(changes), from_step)
        agree.on_first(reporting(run / "run.json")(lambda: run_directory.record_change(run, recipe, change)))
    return first_step
