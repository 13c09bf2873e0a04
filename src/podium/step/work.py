"""The work of a program, counted from its own trace: the floating-point operations of every convolution and matrix
product, where a multiplication and an addition are two. All else (norms, activations, maxima, the update's elementwise
arithmetic) is not counted, and neither is what an algorithm saves: Winograd's convolution counts as the plain one.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple


class Product(NamedTuple):
    """One convolution or matrix product."""

    flops: float
    bytes: float  # in and out


def flops(jaxpr: Any) -> float:
    """The count of a whole program, all its chips together."""
    return sum(times * product(equation).flops for equation, times in _counted(jaxpr))


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every convolution and matrix product, also inside loops, maps and custom gradients; a norm, which is a product of
    vectors, is none."""
    return (equation for equation, _ in _counted(jaxpr))


def product(equation: Any) -> Product:
    lhs, rhs = (variable.aval for variable in equation.invars)
    out = equation.outvars[0].aval
    moved = float(sum(map(array_bytes, (lhs, rhs, out))))
    if equation.primitive.name == "ffi_call":
        # Forward the third is the output's, backward the images' or the kernel's: one place of the output is made of a
        # whole kernel, but for one channel, in all three.
        kernel, places = {
            "podium_convolve": (rhs, out),
            "podium_convolve_data_gradient": (rhs, lhs),
            "podium_convolve_weight_gradient": (out, rhs),
        }[equation.params["target_name"]]
        return Product(2.0 * places.size * kernel.size / kernel.shape[-1], moved)
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        inner = math.prod(lhs.shape[axis] for axis in contracted)
    else:
        numbers = equation.params["dimension_numbers"]
        # A dilated input is mostly zeros that nobody multiplies.
        inner = rhs.size / rhs.shape[numbers.rhs_spec[0]] / math.prod(equation.params["lhs_dilation"])
    return Product(2.0 * out.size * inner, moved)


def array_bytes(array: Any) -> int:
    return int(array.size * array.dtype.itemsize)


def _counted(jaxpr: Any, times: int = 1) -> Iterator[tuple[Any, int]]:
    """Each product with how often it is done: by every chip, in every round of a scan. Of a loop whose rounds are
    not known, one counts."""
    for equation in jaxpr.eqns:
        if _is_product(equation):
            yield equation, times
        inside = times * _repeats(equation)
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _counted(inner, inside)


def _is_product(equation: Any) -> bool:
    if equation.primitive.name == "ffi_call":
        return str(equation.params["target_name"]).startswith("podium_convolve")
    return equation.primitive.name in ("conv_general_dilated", "dot_general") and equation.outvars[0].aval.ndim > 1


def _repeats(equation: Any) -> int:
    match equation.primitive.name:
        case "scan":
            return int(equation.params["length"])
        case "shard_map":
            return int(equation.params["mesh"].size)
        case _:
            return 1
