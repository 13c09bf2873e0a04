"""What must be set before JAX first uses a device."""

from podium.host import compile_cache
from podium.mesh import pass_over_compilers


def start_jax() -> None:
    """Keeps compiled programs between runs, and looks for no accelerator where there is none."""
    compile_cache.enable()
    pass_over_compilers()
