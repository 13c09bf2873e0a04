"""The native library of `native/convolve`, as XLA's custom calls. It is built when Podium is installed, with GCC or
Clang; where it is absent `missing` says why, and XLA's own operations serve. They also serve outside of `used()`: only
the programs of a step on a CPU hold custom calls, never what is exported or planned.
"""

import contextlib
import contextvars
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

import podium

LIBRARY_NAME = "libpodium_convolve.so"
_ABI = 1
_DOUBLE = ctypes.c_double
_CALLS = (
    *("convolve", "convolve_data_gradient", "convolve_weight_gradient"),
    *("norm_sums", "norm_apply", "norm_gradient_sums", "norm_gradient"),
    *("halve", "halve_gradient", "max_pool", "max_pool_gradient"),
)


def _load() -> tuple[Any, str]:
    """The library, or why there is none."""
    found = [path for path in (Path(place) / LIBRARY_NAME for place in podium.__path__) if path.exists()]
    if not found:
        return None, f"no {LIBRARY_NAME}; install a C++ compiler (GCC or Clang), then Podium again"
    try:
        library = ctypes.CDLL(str(found[0]))
        if (abi := library.podium_convolve_abi()) != _ABI:
            return None, f"{LIBRARY_NAME} has interface {abi}, this Podium needs {_ABI}; install Podium again"
        library.podium_convolve_isa.restype = ctypes.c_char_p
        library.podium_convolve_peak.restype, library.podium_convolve_peak.argtypes = _DOUBLE, (_DOUBLE,)
        for name in _CALLS:
            handler = jax.ffi.pycapsule(getattr(library, f"podium_{name}"))
            jax.ffi.register_ffi_target(f"podium_{name}", handler, platform="cpu")
    except (OSError, AttributeError) as error:
        return None, f"{LIBRARY_NAME} cannot be loaded ({error}); install Podium again"
    return library, ""


_library, missing = _load()
_in_use = contextvars.ContextVar("native operations", default=False)


@contextlib.contextmanager
def used(wanted: bool = True) -> Iterator[None]:
    """Operations that are traced inside are native, if `wanted` and if the library is there. PODIUM_CONVOLVE=xla in the
    environment leaves them to XLA."""
    before = _in_use.set(wanted and not missing and os.environ.get("PODIUM_CONVOLVE") != "xla")
    try:
        yield
    finally:
        _in_use.reset(before)


@contextlib.contextmanager
def left_to_xla() -> Iterator[None]:
    """What is traced inside is XLA's, whoever traces it."""
    before = os.environ.get("PODIUM_CONVOLVE")
    os.environ["PODIUM_CONVOLVE"] = "xla"
    try:
        yield
    finally:
        os.environ.pop("PODIUM_CONVOLVE")
        if before is not None:
            os.environ["PODIUM_CONVOLVE"] = before


def serves(*operands: jax.Array) -> bool:
    """Whether an operation on these is to be native: they are fp32, and a CPU's step is being traced."""
    return _in_use.get() and all(operand.dtype == jnp.float32 for operand in operands)


def instruction_set() -> str:
    """What the library computes with: avx512, avx2 or plain."""
    return _library.podium_convolve_isa().decode()


def use_instruction_set(name: str) -> bool:
    """From now on computes with this one; False where the processor does not have it."""
    return bool(_library.podium_convolve_use(name.encode()))


def multiply_adds_per_second(seconds: float) -> float:
    """Measures what this thread reaches on registers alone."""
    return _library.podium_convolve_peak(seconds)


def vary_alike(*operands: jax.Array) -> tuple[jax.Array, ...]:
    """Operands that all vary over the chips over which one of them does, as a custom call and its gradient want it. The
    cast's transpose sums a replicated operand's gradient."""
    over = frozenset().union(*(jax.typeof(operand).mat.varying for operand in operands))

    def cast(operand: jax.Array) -> jax.Array:
        missing = tuple(over - jax.typeof(operand).mat.varying)
        return lax.pcast(operand, missing, to="varying") if missing else operand

    return tuple(cast(operand) for operand in operands)


def call(name: str, shape: tuple[int, ...], *operands: jax.Array, numbers: tuple[int, ...] = ()) -> jax.Array:
    """An fp32 array of `shape` from a custom call, whose only attribute are `numbers`. It varies over the chips as the
    operands do."""
    like = jax.typeof(operands[0])
    sharding = NamedSharding(like.sharding.mesh, PartitionSpec())
    result = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding, manual_axis_type=like.mat)
    return jax.ffi.ffi_call(f"podium_{name}", result)(*operands, numbers=np.asarray(numbers, np.int64))
