"""The versions of everything that a result depends on."""

from importlib import metadata

_VERSIONS = ("podium", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def versions() -> dict[str, str]:
    """The versions of everything that a result depends on."""
    return {name: metadata.version(name) for name in _VERSIONS}
