"""GPUs that are only described: with the `plan-gpu` extra, XLA compiles for them on any machine."""

from importlib.util import find_spec

import jax
import pytest
from jax.experimental import topologies

from podium.plan.cuda_target import target_config

needs_cuda_compiler = pytest.mark.skipif(
    find_spec("jax_plugins") is None, reason="needs the CUDA compiler: make install EXTRAS=plan-gpu"
)


def described_gpus(shape: str, card: str = "h100") -> list[jax.Device]:
    """`shape` is PARTITIONSxPROCESSESxGPUS, in the order in which XLA lists them."""
    return topologies.get_topology_desc(platform="cuda", target_config=target_config(card), topology=shape).devices
