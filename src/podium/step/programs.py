"""The compiled programs of a run: initialise, train, evaluate. `build_step(recipe, mesh)` is the one seam through
which `train`, `eval`, `bench` and `plan` get them, so what is planned or measured is exactly what runs. Nothing
here reads data or waits for a device. What a training step does stands in `training`, what an evaluation does in
`evaluation`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from podium import optim
from podium.mesh import batch_sharding, is_cpu, is_tpu, replicated_sharding
from podium.models import native
from podium.recipe.batch import eval_batch, packed, train_batch
from podium.recipe.schema import Recipe
from podium.step.average import with_average
from podium.step.compiler_options import compiler_options
from podium.step.evaluation import Evaluation
from podium.step.network import ModelFactory, build_network
from podium.step.pixels import packs_images
from podium.step.state import Metrics, State
from podium.step.training import Training
from podium.step.update import build_update


@dataclass(frozen=True)
class Step:
    """The compiled programs, and where their arguments live."""

    init: Callable[[], State]
    portable: Callable[[State], State]
    """The state as checkpoints have it: on every chip, and the same for any number of chips."""
    resumed: Callable[[State], State]
    """What `portable` undoes."""
    train: Any
    """(state, batch with a leading axis of steps) → (state, metrics [steps]); the state is donated."""
    evaluate: Any
    """(state, totals, batch) → totals."""
    zero_totals: Callable[[], Metrics]
    predict: Any
    """(state, images) → probabilities [batch, classes], on one chip or as the images lie."""
    answer: Any
    """The same for whole batches, each chip its share."""
    packed: bool
    """Whether `train` and `evaluate` are fastest on packed images (`recipe.batch`); they take others too."""
    train_batches: NamedSharding
    eval_batches: NamedSharding
    everywhere: NamedSharding


def build_step(
    recipe: Recipe,
    mesh: Mesh,
    make_model: ModelFactory | None = None,
    *,
    optimizer: optim.OwnOptimizer | None = None,
) -> Step:
    """Programs for `recipe` on `mesh`. `make_model(rngs)` replaces the recipe's network: an NNX module from normalised
    images to logits, best built with `podium.build_norm(recipe.model)` as its norm. `optimizer` replaces the recipe's:
    any optax transformation, or a function that makes one from the recipe's learning rate.

    >>> from podium import Loader, build_step, load_recipe, recipe_mesh
    >>> recipe = load_recipe("demo", ["epochs=2", "torus=1x2", "data.image_size=16"]).for_data(3, 96, 22)
    >>> mesh = recipe_mesh(recipe)
    >>> step = build_step(recipe, mesh)
    >>> state = step.init()
    >>> for batch in Loader("prepared", recipe, mesh).steps(2):
    ...     state, metrics = step.train(state, {name: part[None] for name, part in batch.items()})
    >>> int(state.step), metrics["loss"].shape  # the losses of a dispatch, here of one step
    (2, (1,))
    """
    network = build_network(recipe, mesh, make_model)
    update = build_update(recipe, mesh, jax.eval_shape(network.initial), own=optimizer, order=network.order)
    training = Training(
        recipe, network, optim.build_schedule(recipe), update, repeats=make_model is None and is_tpu(mesh)
    )
    evaluation = Evaluation(recipe, network, update)
    everywhere, specs = replicated_sharding(mesh), update.specs
    steps_then_batch, batch_only = batch_sharding(mesh, leading=1), batch_sharding(mesh)
    portable = jax.shard_map(update.portable, mesh=mesh, in_specs=(specs,), out_specs=P())
    resumed = jax.shard_map(
        lambda state: update.resumed(with_average(recipe, state)), mesh=mesh, in_specs=P(), out_specs=specs
    )
    laid_out = jax.tree.map(partial(NamedSharding, mesh), specs)
    on_every_chip = partial(_on_every_chip, mesh, compiler_options(recipe, mesh, own_network=make_model is not None))
    return Step(
        init=jax.jit(lambda: resumed(training.start()), out_shardings=laid_out),
        portable=jax.jit(portable, out_shardings=everywhere),
        resumed=jax.jit(resumed, out_shardings=laid_out),
        train=on_every_chip(
            training.dispatch, in_specs=(specs, steps_then_batch.spec), out_specs=(specs, P()), donate=(0,)
        ),
        evaluate=on_every_chip(evaluation.add, in_specs=(specs, P(), batch_only.spec), out_specs=P()),
        zero_totals=jax.jit(evaluation.zero_totals, out_shardings=everywhere),
        predict=jax.jit(evaluation.predict),
        packed=make_model is None and packs_images(recipe, on_tpu=is_tpu(mesh)),
        answer=on_every_chip(evaluation.predict, in_specs=(specs, batch_only.spec), out_specs=batch_only.spec),
        train_batches=steps_then_batch,
        eval_batches=batch_only,
        everywhere=everywhere,
    )


def _on_every_chip(
    mesh: Mesh,
    options: dict[str, Any],
    f: Callable[..., Any],
    *,
    in_specs: Any,
    out_specs: Any,
    donate: tuple[int, ...] = (),
) -> Any:
    def traced(*arguments: Any) -> Any:
        with native.used(is_cpu(mesh)):
            return f(*arguments)

    mapped = jax.shard_map(traced, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    # Named once more: jit would describe the same places in other words, and compile anew for its own output.
    laid_out = jax.tree.map(partial(NamedSharding, mesh), out_specs)
    return jax.jit(mapped, out_shardings=laid_out, donate_argnums=donate, compiler_options=options)


def parameter_shapes(recipe: Recipe, mesh: Mesh, make_model: ModelFactory | None = None) -> Any:
    """The weights that `build_step` would train, without their numbers; refuses the networks that it refuses."""
    return network_shapes(recipe, mesh, make_model)[0]


def network_shapes(recipe: Recipe, mesh: Mesh, make_model: ModelFactory | None = None) -> tuple[Any, Any]:
    """Those weights and batch norm's statistics, without their numbers."""
    return jax.eval_shape(build_network(recipe, mesh, make_model).initial)


def batch_shapes(
    recipe: Recipe, step: Step, steps: int | None, *, size: int | None = None
) -> dict[str, jax.ShapeDtypeStruct]:
    """A batch without its data: of so many steps, as `train` takes it, or as `evaluate` does where `steps` is None.
    `size` is that of the images to train on, by default the last of the recipe."""
    examples = recipe.batch_global
    parts = eval_batch(recipe.data, examples) if steps is None else train_batch(recipe, steps, examples, size=size)
    sharding = step.eval_batches if steps is None else step.train_batches
    if step.packed:
        parts = packed(parts, sharding.num_devices)
    return {name: jax.ShapeDtypeStruct(*part, sharding=sharding) for name, part in parts.items()}
