"""A network as StableHLO, XLA's portable program format: a function of the weights, by PyTorch's names, and of uint8
images in a batch of any size. It runs on CPUs, GPUs and TPUs wherever JAX does, without Podium.

    exported = jax.export.deserialize(open("model.stablehlo", "rb").read())
    logits = exported.call(safetensors.numpy.load_file("model.safetensors"), images)
"""

from typing import Any

import jax
import numpy as np
from jax import export

from podium.exchange.names import Tensors, from_torch, name_of, torch_name
from podium.step.network import Network

_PLATFORMS = ("cpu", "cuda", "tpu")


def build_stablehlo(network: Network, tensors: Tensors) -> bytes:
    """The program; `tensors` are needed for their names and shapes only."""
    model, size = network.recipe.model, network.recipe.data.evaluation_size
    shapes = jax.eval_shape(network.initial)

    def logits(weights: dict[str, jax.Array], images: jax.Array) -> jax.Array:
        def placed(path: tuple[Any, ...], _: Any) -> jax.Array:
            return from_torch(weights[torch_name(model, name_of(path))])

        params, stats = (jax.tree_util.tree_map_with_path(placed, tree) for tree in shapes)
        with jax.default_matmul_precision("highest"):  # by themselves TPUs and GPUs round what they multiply
            return network.forward(params, stats, {"image": images}, train=False)[0]

    (batch,) = export.symbolic_shape("batch")
    weights = {name: jax.ShapeDtypeStruct(tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
    images = jax.ShapeDtypeStruct((batch, size, size, 3), np.uint8)
    return bytes(export.export(jax.jit(logits), platforms=_PLATFORMS)(weights, images).serialize())


def run_stablehlo(program: bytes, tensors: Tensors, images: np.ndarray) -> np.ndarray:
    """Logits of `images`, as anybody who has the files would get them."""
    return np.asarray(export.deserialize(bytearray(program)).call(tensors, images))
