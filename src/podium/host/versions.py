"""The versions of everything that a result depends on."""

from importlib import metadata

_VERSIONS = ("podium", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
# What computes on GPUs, under whichever name it was installed.
_OF_GPUS = (
    *("jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12", "nvidia-nccl-cu12"),
    *("jax-cuda13-plugin", "jax-cuda13-pjrt", "nvidia-cuda-runtime", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"),
)


def versions() -> dict[str, str]:
    """The versions of everything that a result depends on."""
    return {name: metadata.version(name) for name in _VERSIONS} | versions_of_gpus()


def versions_of_gpus() -> dict[str, str]:
    """JAX's CUDA plugin, CUDA, cuDNN and NCCL, where they are installed."""
    found = {}
    for name in _OF_GPUS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
