"""`declare_replicated(x, axes)` tells shard_map's type checker that x is equal on all devices along `axes`. JAX 0.10
proves that for psum, but a ppermute's result is device-varying whatever was sent, and `jax.lax.pcast` knows no way
back from varying. Turning `check_vma` off for the whole step would also turn off the automatic psum of gradients and
every other check; this primitive lowers to nothing and states the one fact that the contract tests prove for each
collective. It defines no derivative: gradients are summed, not differentiated through."""

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

_replicated_p = Primitive("podium_replicated")
_replicated_p.def_impl(lambda x, *, axes: x)


def declare_replicated(x: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    return _replicated_p.bind(x, axes=axes)


@_replicated_p.def_abstract_eval
def _abstract(x, *, axes):  # type: ignore[no-untyped-def]
    return x.update(manual_axis_type=x.mat.update(varying=x.mat.varying - set(axes)))


mlir.register_lowering(_replicated_p, lambda ctx, x, *, axes: [x])
