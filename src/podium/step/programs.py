"""The compiled programs of a run: initialise, train, evaluate. `build_step(recipe, mesh)` is the one seam through
which `train`, `eval`, `bench` and `plan` get them, so what is planned or measured is exactly what runs. Nothing
here reads data or waits for a device.

One training step, on every chip (`shard_map`): normalise the pixels → forward and backward in the recipe's precision
→ gradients, batch-norm statistics and metrics summed over the torus, and the optimizer's update (`weight_update`). A
dispatch runs several steps as a scan on the device.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from podium import models, optim
from podium.errors import UserError
from podium.mesh import AXES, batch_sharding, is_cpu, replicated_sharding
from podium.recipe.schema import Recipe
from podium.step.losses import cross_entropy, hits
from podium.step.pixels import normalise_pixels
from podium.step.update import build_update

Batch = dict[str, jax.Array]
"""image uint8 […, batch, size, size, 3] · label int32 […, batch] (−1: padding) · colour float32 […, batch, 3]"""
Metrics = dict[str, jax.Array]
ModelFactory = Callable[[nnx.Rngs], nnx.Module]

# Without these, XLA:CPU's weight-gradient convolutions are several times slower than oneDNN's (results/step).
_CPU_OPTIONS = {
    "xla_cpu_experimental_ynn_fusion_type": ",".join(
        f"LIBRARY_FUSION_TYPE_{kind}" for kind in ("DOT", "ELTWISE", "REDUCE")
    )
}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that a step changes."""

    step: Any
    params: Any
    stats: Any
    momenta: Any


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
    """(state, images) → probabilities [batch, classes]."""
    train_batches: NamedSharding
    eval_batches: NamedSharding
    everywhere: NamedSharding


def build_step(recipe: Recipe, mesh: Mesh, make_model: ModelFactory | None = None) -> Step:
    """Programs for `recipe` on `mesh`. `make_model(rngs)` replaces the recipe's network: an NNX module from normalised
    images to logits, best built with `podium.models.build_norm(recipe.model)` as its norm."""
    make_model = make_model or _recipes_network(recipe, mesh)
    graph = nnx.graphdef(_network(make_model))
    schedule, update_weights = optim.build_schedule(recipe), build_update(recipe, mesh)
    chips = mesh.size

    def initialise() -> State:
        model = make_model(nnx.Rngs(recipe.seed))
        params, stats = nnx.state(model, nnx.Param), nnx.state(model, nnx.BatchStat)
        return State(jnp.zeros((), jnp.int32), params, stats, update_weights.start(params))

    def forward(params: Any, stats: Any, batch: Batch, train: bool) -> tuple[jax.Array, Any]:
        model = nnx.merge(graph, params, stats, copy=True)
        model.train() if train else model.eval()
        with _multiplying(recipe, mesh):
            logits = model(normalise_pixels(batch["image"], recipe.data, batch.get("colour")))
        return logits.astype(jnp.float32), nnx.state(model, nnx.BatchStat)

    def train_one(state: State, batch: Batch) -> tuple[State, Metrics]:
        def objective(params: Any) -> tuple[jax.Array, tuple[Any, jax.Array]]:
            logits, stats = forward(params, state.stats, batch, train=True)
            losses = cross_entropy(logits, batch["label"], recipe.label_smoothing)
            return losses.sum() / recipe.batch_global, (stats, hits(logits, batch["label"], 1).sum(dtype=jnp.float32))

        # Parameters that vary by chip have gradients that do: summing them over the torus is then ours to do.
        params = lax.pcast(state.params, AXES, to="varying")
        (loss, (stats, right)), gradients = jax.value_and_grad(objective, has_aux=True)(params)
        stats = jax.tree.map(lambda s: s / chips, stats)
        rate = jnp.asarray(schedule(state.step), jnp.float32)
        new_params, momenta, (stats, loss, right) = update_weights(
            state.params, state.momenta, gradients, rate, others=(stats, loss, right)
        )
        metrics = {"loss": loss, "top1": right / recipe.batch_global, "learning_rate": rate}
        return State(state.step + 1, new_params, stats, momenta), metrics

    def train(state: State, batches: Batch) -> tuple[State, Metrics]:
        return (_unrolled if is_cpu(mesh) else lax.scan)(train_one, state, batches)

    def evaluate(state: State, totals: Metrics, batch: Batch) -> Metrics:
        logits, _ = forward(state.params, state.stats, batch, train=False)
        label = batch["label"]
        counted = label >= 0
        losses = cross_entropy(logits, jnp.maximum(label, 0), 0.0)
        of_batch = {
            "images": counted.sum(),
            "top1": (hits(logits, label, 1) & counted).sum(),
            "top5": (hits(logits, label, 5) & counted).sum(),
            "loss": jnp.where(counted, losses, 0.0).sum(),
        }
        return jax.tree.map(lambda total, part: total + lax.psum(part, AXES), totals, of_batch)

    def predict(state: State, image: jax.Array) -> jax.Array:
        return jax.nn.softmax(forward(state.params, state.stats, {"image": image}, train=False)[0])

    def portable(state: State) -> State:
        return replace(state, momenta=update_weights.portable(state.momenta, state.params))

    def resumed(state: State) -> State:
        return replace(state, momenta=update_weights.resumed(state.momenta))

    options = _CPU_OPTIONS if is_cpu(mesh) else None
    everywhere = replicated_sharding(mesh)
    steps_then_batch = batch_sharding(mesh, leading=1)
    batch_only = batch_sharding(mesh)
    state_specs = State(P(), P(), P(), update_weights.momenta_spec)

    def on_mesh(specs: Any) -> Any:
        return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)

    def on_every_chip(f: Callable, in_specs: Any, out_specs: Any, donate: Any) -> Any:
        mapped = jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
        # Named once more: jit would describe the same places in other words, and compile anew for its own output.
        return jax.jit(mapped, out_shardings=on_mesh(out_specs), donate_argnums=donate, compiler_options=options)

    return Step(
        init=jax.jit(initialise, out_shardings=on_mesh(state_specs)),
        portable=jax.jit(portable, out_shardings=everywhere),
        resumed=jax.jit(resumed, out_shardings=on_mesh(state_specs)),
        train=on_every_chip(train, (state_specs, steps_then_batch.spec), (state_specs, P()), donate=0),
        evaluate=on_every_chip(evaluate, (state_specs, P(), batch_only.spec), P(), donate=()),
        zero_totals=jax.jit(_zero_totals, out_shardings=everywhere),
        predict=jax.jit(predict),
        train_batches=steps_then_batch,
        eval_batches=batch_only,
        everywhere=everywhere,
    )


def _unrolled(train_one: Callable, state: State, batches: Batch) -> tuple[State, Metrics]:
    """`lax.scan` without its loop: XLA:CPU brings convolutions into the form that its fast kernels know only outside of
    loops, and those left inside run some thirty times slower (docs/decisions/001)."""
    metrics = []
    for i in range(len(batches["label"])):
        state, of_step = train_one(state, jax.tree.map(lambda b, i=i: b[i], batches))
        metrics.append(of_step)
    return state, jax.tree.map(lambda *values: jnp.stack(values), *metrics)


def convolution_dtype(recipe: Recipe, mesh: Mesh) -> Any:
    if recipe.precision == "auto":
        return jnp.float32 if is_cpu(mesh) else jnp.bfloat16
    return {"bf16": jnp.bfloat16, "fp32": jnp.float32}[recipe.precision]


def _multiplying(recipe: Recipe, mesh: Mesh) -> contextlib.AbstractContextManager[Any]:
    """Where fp32 is asked for, products of fp32 are: by themselves TPUs and GPUs round their operands first."""
    if recipe.precision == "fp32" and not is_cpu(mesh):
        return jax.default_matmul_precision("highest")
    return contextlib.nullcontext()


def parameter_shapes(recipe: Recipe, mesh: Mesh, make_model: ModelFactory | None = None) -> Any:
    """The weights that `build_step` would train, without their numbers; refuses the networks that it refuses."""
    return nnx.state(_network(make_model or _recipes_network(recipe, mesh)), nnx.Param)


def _recipes_network(recipe: Recipe, mesh: Mesh) -> ModelFactory:
    models.check(recipe.model, recipe.data.image_size)
    return partial(models.build_model, recipe.model, recipe.model.classes, convolution_dtype(recipe, mesh))


def _network(make_model: ModelFactory) -> nnx.Module:
    """The network without its numbers; a step carries parameters and batch-norm statistics, and nothing else."""
    network = nnx.eval_shape(lambda: make_model(nnx.Rngs(0)))
    others = nnx.state(network, nnx.Not(nnx.Any(nnx.Param, nnx.BatchStat)))
    kinds = sorted({type(variable).__name__ for _, variable in nnx.to_flat_state(others)})
    if kinds:
        raise UserError(
            f"the network holds {', '.join(kinds)}; a step carries only nnx.Param and nnx.BatchStat from one to the "
            "next: leave out what needs more (nnx.Dropout does)"
        )
    return network


def batch_shapes(recipe: Recipe, sharding: NamedSharding, steps: int | None) -> dict[str, jax.ShapeDtypeStruct]:
    """A batch without its data: of so many steps, as `train` takes it, or as `evaluate` does where `steps` is None."""
    size, leading = recipe.data.image_size, (recipe.batch_global,) if steps is None else (steps, recipe.batch_global)
    shapes: dict[str, tuple[tuple[int, ...], Any]] = {"image": ((size, size, 3), jnp.uint8), "label": ((), jnp.int32)}
    if steps is not None and recipe.data.colour_jitter:
        shapes["colour"] = ((3,), jnp.float32)
    return {
        name: jax.ShapeDtypeStruct((*leading, *shape), dtype, sharding=sharding)
        for name, (shape, dtype) in shapes.items()
    }


def _zero_totals() -> Metrics:
    return {
        "images": jnp.zeros((), jnp.int32),
        "top1": jnp.zeros((), jnp.int32),
        "top5": jnp.zeros((), jnp.int32),
        "loss": jnp.zeros((), jnp.float32),
    }
