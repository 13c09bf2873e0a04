"""The versions of everything that a result depends on."""

from importlib import metadata

_VERSIONS = ("podium", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
# What computes on GPUs, under whichever name it was installed.
_OF_GPUS = tuple(
    name.format(cuda)
    for cuda in ("12", "13")
    for name in ("jax-cuda{}-plugin", "jax-cuda{}-pjrt", "nvidia-cudnn-cu{}", "nvidia-nccl-cu{}")
)


def versions() -> dict[str, str]:
    """The versions of everything that a result depends on."""
    return {name: metadata.version(name) for name in _VERSIONS} | versions_of_gpus()


def versions_of_gpus() -> dict[str, str]:
    """JAX's CUDA plugin, cuDNN and NCCL, where they are installed."""
    found = {}
    for name in _OF_GPUS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
