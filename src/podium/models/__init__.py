"""Networks in Flax NNX, and the batch normalization that spans chips."""

from functools import partial

import jax.numpy as jnp
from flax import nnx

from podium.errors import UserError
from podium.models.batch_norm import DistributedBatchNorm
from podium.models.freeze import check_freeze
from podium.models.pooled import POOLED, PooledNet
from podium.models.resnet import SHAPES, Layers, NormFactory, ResNet
from podium.recipe.schema import Model

__all__ = [
    "POOLED",
    "SHAPES",
    "DistributedBatchNorm",
    "NormFactory",
    "PooledNet",
    "ResNet",
    "build_model",
    "build_norm",
    "check",
]


def build_norm(model: Model) -> NormFactory:
    """The norm of a recipe, for a model of your own: a function of the number of channels.

    >>> from flax import nnx
    >>> from podium import build_norm, load_recipe
    >>> norm = build_norm(load_recipe("demo").model)
    >>> norm(64, rngs=nnx.Rngs(0)).span
    32
    """
    return partial(DistributedBatchNorm, span=model.norm_span, momentum=model.norm_momentum, epsilon=model.norm_epsilon)


def check(model: Model, *image_sizes: int) -> None:
    """Whether there is such a network for such images, before anything is done for it."""
    if model.stem in ("space_to_depth", "fold3") and (odd := [size for size in image_sizes if size % 2]):
        raise UserError(f"model.stem={model.stem} folds pixels in pairs; data.image_size={odd[0]} must be even")
    if model.name not in SHAPES | POOLED:
        raise UserError(f"model.name={model.name!r} is not one of {', '.join(SHAPES | POOLED)}")
    if (model.stem == "patches") != (model.name in POOLED):
        fitting = "patches" if model.name in POOLED else "conv7, space_to_depth, conv3 or fold3"
        raise UserError(f"model.stem={model.stem!r} does not fit model.name={model.name!r}; use {fitting}")
    check_freeze(model)
    for name in ("last_scale", "stochastic_depth", "blur") if model.name in POOLED else ():
        if (given := getattr(model, name)) != getattr(Model, name):
            raise UserError(f"model.{name}={given:g} does nothing with model.name={model.name!r}; leave it out")


def build_model(
    model: Model, classes: int, dtype: jnp.dtype, *, on_gpu: bool = False, apart: bool = False, rngs: nnx.Rngs
) -> nnx.Module:
    """The network of a recipe that `check` has passed; `on_gpu` and `apart` are those of `Layers`."""
    layers = Layers(
        build_norm(model), dtype, model.padding, on_gpu, apart=apart,
        dropout=model.dropout, depth_drop=model.stochastic_depth, blur=model.blur,
    )  # fmt: skip
    if model.stem == "patches":
        return PooledNet(POOLED[model.name], classes, layers=layers, rngs=rngs)
    return ResNet(SHAPES[model.name], classes, stem=model.stem, layers=layers, last_scale=model.last_scale, rngs=rngs)
