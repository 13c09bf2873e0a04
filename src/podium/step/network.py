"""A recipe's network as a function of its numbers: parameters, batch-norm statistics and pixels in, logits out. It
holds the network's structure, never its numbers, and does not know how they are trained."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from podium import models
from podium.errors import UserError
from podium.mesh import is_cpu, is_gpu
from podium.models.attempt import Attempt
from podium.models.batch_norm import DistributedBatchNorm
from podium.models.freeze import keep_statistics
from podium.recipe.schema import Recipe
from podium.step.pixels import normalise_pixels
from podium.step.state import Batch

ModelFactory = Callable[[nnx.Rngs], nnx.Module]
Means = dict[str, jax.Array]
"""By a norm's place in the network."""


class Found(NamedTuple):
    means: Means
    """The means of this chip's tile."""
    far: jax.Array
    """Whether one of them is too far from where it was expected for the sums to be exact."""


@dataclass(frozen=True)
class Network:
    recipe: Recipe
    mesh: Mesh
    make_model: ModelFactory
    graph: nnx.GraphDef[Any]

    def initial(self) -> tuple[Any, Any]:
        """Parameters and batch-norm statistics, drawn from the recipe's seed."""
        model = self.make_model(nnx.Rngs(self.recipe.seed))
        return nnx.state(model, nnx.Param), nnx.state(model, nnx.BatchStat)

    def forward(self, params: Any, stats: Any, batch: Batch, *, train: bool) -> tuple[jax.Array, Any]:
        """Logits in fp32, and the statistics after this batch."""
        return self._run(self._model(params, stats, train=train), batch)

    def expected_means(self, params: Any, stats: Any) -> Means:
        """The moving means of the norms that take part in training, by the norm's place."""
        return {name: norm.mean[...] for name, norm in _norms(self._model(params, stats, train=True))}

    def attempt(self, params: Any, stats: Any, batch: Batch, *, about: Means) -> tuple[jax.Array, Any, Found]:
        """The forward pass of training whose norms take their sums about these means, and what they have found."""
        model = self._model(params, stats, train=True)
        attempts = {name: Attempt(about[name]) for name, _ in _norms(model)}
        for name, norm in _norms(model):
            norm.attempt = attempts[name]
        logits, stats = self._run(model, batch)
        far = [attempt.far for attempt in attempts.values() if attempt.far is not None]
        any_far = jnp.stack(far).any() if far else jnp.zeros((), bool)
        return logits, stats, Found({name: attempt.about for name, attempt in attempts.items()}, any_far)

    def _model(self, params: Any, stats: Any, *, train: bool) -> nnx.Module:
        model = nnx.merge(self.graph, params, stats, copy=True)
        model.train() if train else model.eval()
        if train:
            keep_statistics(self.recipe.model, model)
        return model

    def _run(self, model: Any, batch: Batch) -> tuple[jax.Array, Any]:
        with _multiplying(self.recipe, self.mesh):
            logits = model(normalise_pixels(batch["image"], self.recipe.data, batch.get("colour")))
        return logits.astype(jnp.float32), nnx.state(model, nnx.BatchStat)


def build_network(recipe: Recipe, mesh: Mesh, make_model: ModelFactory | None = None) -> Network:
    """The recipe's network, or the caller's own."""
    if make_model is None:
        models.check(recipe.model, recipe.data.image_size)
        dtype = convolution_dtype(recipe, mesh)
        make_model = partial(_make_model, recipe, dtype=dtype, on_gpu=is_gpu(mesh))
        return Network(recipe, mesh, make_model, _graph(make_model))
    network = Network(recipe, mesh, make_model, _graph(make_model))
    _check_logits(network)
    return network


def _norms(model: nnx.Module) -> list[tuple[str, DistributedBatchNorm]]:
    """Those that take statistics of the batch."""
    return [
        ("/".join(map(str, path)), part)
        for path, part in nnx.iter_modules(model)
        if isinstance(part, DistributedBatchNorm) and not part.use_running_average
    ]


def _check_logits(network: Network) -> None:
    """Whether the caller's network gives a number for each class: one that does not would train on nonsense."""
    recipe = network.recipe
    size, classes = recipe.data.image_size, recipe.model.classes
    images = jax.ShapeDtypeStruct((1, size, size, 3), jnp.uint8)
    params, stats = jax.eval_shape(network.initial)
    shape = jax.eval_shape(
        lambda p, s, x: network.forward(p, s, {"image": x}, train=False)[0], params, stats, images
    ).shape
    if classes and shape != (1, classes):
        raise UserError(
            f"the network gives {list(shape)[1:]} numbers per image and the data has {classes} classes; make its last "
            f"layer {classes} wide"
        )


def _make_model(recipe: Recipe, rngs: nnx.Rngs, *, dtype: Any, on_gpu: bool) -> nnx.Module:
    return models.build_model(recipe.model, recipe.model.classes, dtype, on_gpu=on_gpu, rngs=rngs)


def convolution_dtype(recipe: Recipe, mesh: Mesh) -> Any:
    if recipe.precision == "auto":
        return jnp.float32 if is_cpu(mesh) else jnp.bfloat16
    return {"bf16": jnp.bfloat16, "fp32": jnp.float32}[recipe.precision]


def _multiplying(recipe: Recipe, mesh: Mesh) -> contextlib.AbstractContextManager[Any]:
    """Where fp32 is asked for, products of fp32 are: by themselves TPUs and GPUs round their operands first."""
    if recipe.precision == "fp32" and not is_cpu(mesh):
        return jax.default_matmul_precision("highest")
    return contextlib.nullcontext()


def _graph(make_model: ModelFactory) -> nnx.GraphDef[Any]:
    """The network without its numbers; a step carries parameters and batch-norm statistics, and nothing else."""
    network = nnx.eval_shape(lambda: make_model(nnx.Rngs(0)))
    others = nnx.state(network, nnx.Not(nnx.Any(nnx.Param, nnx.BatchStat)))
    kinds = sorted({type(variable).__name__ for _, variable in nnx.to_flat_state(others)})
    if kinds:
        raise UserError(
            f"the network holds {', '.join(kinds)}; a step carries only nnx.Param and nnx.BatchStat from one to the "
            "next: leave out what needs more (nnx.Dropout does)"
        )
    return nnx.graphdef(network)
