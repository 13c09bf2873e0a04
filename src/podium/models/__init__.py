"""Networks in Flax NNX, and the batch normalization that spans chips."""

from functools import partial

import jax.numpy as jnp
from flax import nnx

from podium import recipe as recipes
from podium.errors import UserError
from podium.models.batch_norm import DistributedBatchNorm
from podium.models.resnet import SHAPES, NormFactory, ResNet

__all__ = ["DistributedBatchNorm", "NormFactory", "ResNet", "build_model", "build_norm"]


def build_norm(model: recipes.Model) -> NormFactory:
    """The norm of a recipe, for a model of your own."""
    return partial(DistributedBatchNorm, span=model.norm_span, momentum=model.norm_momentum, epsilon=model.norm_epsilon)


def build_model(model: recipes.Model, classes: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> ResNet:
    if model.name not in SHAPES:
        raise UserError(f"model.name={model.name!r} is not one of {', '.join(SHAPES)}")
    return ResNet(
        SHAPES[model.name],
        classes,
        stem=model.stem,
        norm=build_norm(model),
        last_scale=model.last_scale,
        dtype=dtype,
        rngs=rngs,
    )
