"""A recipe's network as a function of its numbers: parameters, batch-norm statistics and pixels in, logits out. It
holds the network's structure, never its numbers, and does not know how they are trained."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.sharding import Mesh

from podium import models
from podium.errors import UserError
from podium.mesh import AXES, is_cpu, is_gpu
from podium.models.attempt import Attempt
from podium.models.batch_norm import DistributedBatchNorm
from podium.models.dropout import Draws, random_layers, with_own_draws
from podium.models.freeze import keep_statistics
from podium.recipe.schema import Recipe
from podium.step.pixels import network_input
from podium.step.state import Batch

ModelFactory = Callable[[nnx.Rngs], nnx.Module]
Means = dict[str, jax.Array]
"""By a norm's place in the network."""
_CARRIED = nnx.Not(nnx.Param)
# Thousands of cycles of ResNet-50's strided 3×3 gradients in stages 3 and 4 at 16 images a chip, compiled alone: the
# compiler's, and even and odd rows and columns apart (docs/decisions/006). Others, not compiled, are left alone.
_STRIDED_GRADIENTS = {"TPU v3": (935, 534), "TPU v5 lite": (174, 457), "TPU v5": (85, 220)}
_DRAWS = 1  # among what the seed decides


class Attempted(NamedTuple):
    logits: jax.Array
    stats: Any
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
    order: tuple[int, ...]
    """The parameters' numbers in the order in which they were made, which is as a rule that of the forward pass; the
    tree has them by name."""
    draws: bool = False
    """Whether its layers draw at random in training (dropout): batches then need keys, as `with_keys` gives them."""

    def initial(self) -> tuple[Any, Any]:
        """Parameters, drawn from the recipe's seed, and all else that a step carries: batch-norm statistics, and what
        a network of the caller's keeps besides."""
        model = self.make_model(nnx.Rngs(self.recipe.seed))
        return nnx.state(model, nnx.Param), nnx.state(model, _CARRIED)

    def with_keys(self, batch: Batch, step: jax.Array) -> Batch:
        """A chip's batch with a key for each of its examples, from (seed, step, place in the global batch)."""
        if not self.draws:
            return batch
        here = len(batch["label"])
        places = lax.axis_index(AXES) * here + jnp.arange(here)
        of_step = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.recipe.seed), _DRAWS), step)
        keys = jax.vmap(lambda place: jax.random.fold_in(of_step, place))(places)
        return {**batch, "key": jax.random.key_data(keys)}

    def forward(self, params: Any, stats: Any, batch: Batch, *, train: bool) -> tuple[jax.Array, Any]:
        """Logits in fp32, and the statistics after this batch."""
        return self._run(self._model(params, stats, train=train), batch)

    def expected_means(self, params: Any, stats: Any) -> Means:
        """The moving means of the norms that take part in training, by the norm's place."""
        return {name: norm.mean[...] for name, norm in _norms(self._model(params, stats, train=True))}

    def attempt(self, params: Any, stats: Any, batch: Batch, *, about: Means) -> Attempted:
        """The forward pass of training whose norms take their sums about these means, and what they have found."""
        model = self._model(params, stats, train=True)
        attempts = {name: Attempt(about[name]) for name, _ in _norms(model)}
        for name, norm in _norms(model):
            norm.attempt = attempts[name]
        logits, stats = self._run(model, batch)
        excess = [attempt.excess for attempt in attempts.values() if attempt.excess is not None]
        any_far = (jnp.concatenate(excess) > 0).any() if excess else jnp.zeros((), bool)
        means = {name: attempt.about for name, attempt in attempts.items()}
        return Attempted(logits, stats, means, any_far)

    def _model(self, params: Any, stats: Any, *, train: bool) -> nnx.Module:
        model = nnx.merge(self.graph, params, stats, copy=True)
        model.train() if train else model.eval()
        if train:
            keep_statistics(self.recipe.model, model)
        return model

    def _draw_from(self, model: nnx.Module, batch: Batch) -> None:
        draws = Draws(jax.random.wrap_key_data(batch["key"]))
        for layer in random_layers(model):
            layer.draws = draws

    def _run(self, model: Any, batch: Batch) -> tuple[jax.Array, Any]:
        if "key" in batch:
            self._draw_from(model, batch)
        with _multiplying(self.recipe, self.mesh):
            logits = model(network_input(batch, self.recipe.data))
        return logits.astype(jnp.float32), nnx.state(model, _CARRIED)


def build_network(recipe: Recipe, mesh: Mesh, make_model: ModelFactory | None = None) -> Network:
    """The recipe's network, or the caller's own."""
    if make_model is None:
        models.check(recipe.model, *recipe.data.train_sizes, recipe.data.evaluation_size)
        make_model = partial(_make_model, recipe, mesh=mesh)
        return _network(recipe, mesh, make_model)
    own = make_model
    network = _network(recipe, mesh, lambda rngs: with_own_draws(own(rngs)))
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
    size, classes = recipe.data.evaluation_size, recipe.model.classes
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


def _make_model(recipe: Recipe, rngs: nnx.Rngs, *, mesh: Mesh) -> nnx.Module:
    dtype = convolution_dtype(recipe, mesh)
    return models.build_model(
        recipe.model, recipe.model.classes, dtype, on_gpu=is_gpu(mesh), apart=_gains_apart(mesh), rngs=rngs
    )


def _gains_apart(mesh: Mesh) -> bool:
    by_compiler, apart = _STRIDED_GRADIENTS.get(mesh.devices.flat[0].device_kind, (0, 0))
    return apart < by_compiler


def convolution_dtype(recipe: Recipe, mesh: Mesh) -> Any:
    if recipe.precision == "auto":
        return jnp.float32 if is_cpu(mesh) else jnp.bfloat16
    return {"bf16": jnp.bfloat16, "fp32": jnp.float32}[recipe.precision]


def _multiplying(recipe: Recipe, mesh: Mesh) -> contextlib.AbstractContextManager[Any]:
    """Where fp32 is asked for, products of fp32 are: by themselves TPUs and GPUs round their operands first."""
    if recipe.precision == "fp32" and not is_cpu(mesh):
        return jax.default_matmul_precision("highest")
    return contextlib.nullcontext()


def _network(recipe: Recipe, mesh: Mesh, make_model: ModelFactory) -> Network:
    orders: list[tuple[int, ...]] = []

    def make() -> nnx.Module:
        model = make_model(nnx.Rngs(0))
        orders.append(_order(model))  # what eval_shape returns has its parts by name
        return model

    model = nnx.eval_shape(make)
    if nnx.to_flat_state(nnx.state(model, nnx.RngState)):
        raise UserError(
            "the network keeps random number generators, whose draws would depend on the number of chips; draw with "
            "nnx.Dropout, which draws by example here (stochastic depth: broadcast_dims=(1, 2, 3)), and keep no "
            "nnx.Rngs"
        )
    return Network(recipe, mesh, make_model, nnx.graphdef(model), orders[-1], draws=bool(random_layers(model)))


def _order(model: nnx.Module) -> tuple[int, ...]:
    def places(path: tuple[Any, ...]) -> list[int]:
        part, found = model, []
        for name in path:
            members = {str(key): value for key, value in _members(part)}
            found.append(list(members).index(str(name)))
            part = members[str(name)]
        return found

    paths = [path for path, _ in nnx.to_flat_state(nnx.state(model, nnx.Param))]
    return tuple(sorted(range(len(paths)), key=lambda k: places(paths[k])))


def _members(part: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(part, Mapping):
        return part.items()
    return enumerate(part) if isinstance(part, list | tuple) else vars(part).items()
