"""What the compiler is told beyond its defaults, by platform: one table, with reasons."""

from typing import Any

from jax.sharding import Mesh

from podium.mesh import is_gpu
from podium.models import native
from podium.recipe.schema import Recipe
from podium.step.update import is_flat

_CPU_LIBRARY = "xla_cpu_experimental_ynn_fusion_type"
_OPTIONS: dict[str, dict[str, Any]] = {
    # Without these, XLA:CPU's weight-gradient convolutions are several times slower than oneDNN's (results/step).
    "cpu": {_CPU_LIBRARY: ",".join(f"LIBRARY_FUSION_TYPE_{kind}" for kind in ("DOT", "ELTWISE", "REDUCE"))},
    # Gradients are summed while the backward pass still computes. On Hopper and Blackwell XLA does so by itself, on an
    # A100 only when told. CUDA graphs are left alone: XLA makes them by itself.
    "gpu": {"xla_gpu_enable_latency_hiding_scheduler": True},
    # What was tried for TPUs is in docs/pods.md; none of it helps.
    "tpu": {},
}
# What native operations leave to XLA are mostly chains of elementwise ones, which it fuses better by itself.
_BESIDE_NATIVE = {_CPU_LIBRARY: "LIBRARY_FUSION_TYPE_DOT"}
# A flat update has buckets of its own. XLA would join the last, which is small because nothing is left to compute under
# it, to a large one, which then waits for the first layer's gradient as well; only what is below 1 MB is joined.
_OF_FLAT: dict[str, Any] = {"xla_gpu_all_reduce_combine_threshold_bytes": 1_000_000}
# Sums of scattered values in a fixed order, and cuDNN's algorithms not chosen by timing them.
_DETERMINISTIC: dict[str, dict[str, Any]] = {"gpu": {"xla_gpu_deterministic_ops": True}}


def compiler_options(recipe: Recipe, mesh: Mesh, *, own_network: bool = False) -> dict[str, Any]:
    """For a recipe's network; `own_network` is the caller's, whose convolutions XLA computes."""
    platform = mesh.devices.flat[0].platform
    options = _OPTIONS.get(platform, {})
    if platform == "cpu" and not (native.missing or own_network or recipe.precision == "bf16"):
        options = _BESIDE_NATIVE
    if is_gpu(mesh) and is_flat(recipe, on_gpu=True):
        options = options | _OF_FLAT
    return options | (_DETERMINISTIC.get(platform, {}) if recipe.deterministic else {})
