"""What a step must do, counted from its own trace without any compiler: FLOPs and bytes of every convolution and matrix
product, parameters, and the activations that the backward pass needs. `Work.roofline_seconds` holds each of them
against a chip's peaks. This is all that is known for GPUs, for chips whose clock is not published, and without
libtpu.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax

from podium.mesh import build_mesh
from podium.plan.machines import Chip
from podium.recipe.schema import Recipe
from podium.recipe.torus import Shape, Torus
from podium.step.programs import batch_shapes, build_step


class Product(NamedTuple):
    """One convolution or matrix product."""

    flops: float
    bytes: float  # in and out


@dataclass(frozen=True)
class Work:
    """One core's share of one step."""

    products: tuple[Product, ...]
    parameters: int
    activation_bytes: int
    norms: int  # batch-norm layers

    @property
    def flops(self) -> float:
        return sum(product.flops for product in self.products)

    @property
    def gradient_bytes(self) -> int:
        return 4 * self.parameters

    @property
    def memory_bytes(self) -> int:
        """Parameters, momenta and gradients in float32; activations once before and once behind their norm."""
        return 3 * self.gradient_bytes + 2 * self.activation_bytes

    def roofline_seconds(self, chip: Chip) -> float:
        """Each product as fast as the chip's arithmetic or its memory allows, whichever is slower."""
        flops_per_second, bytes_per_second = chip.bf16_flops / chip.cores, chip.memory_bandwidth / chip.cores
        return sum(max(flops / flops_per_second, moved / bytes_per_second) for flops, moved in self.products)


def count(recipe: Recipe, batch_per_core: int) -> Work:
    """The work of one core with `batch_per_core` images. All of it is linear in them, so two traces tell it for any."""
    one, two = _trace(_of_one_core(recipe, 1)), _trace(_of_one_core(recipe, 2))

    def at(first: float, second: float) -> float:
        return first + (batch_per_core - 1) * (second - first)

    products = tuple(
        Product(at(first.flops, second.flops), at(first.bytes, second.bytes))
        for first, second in zip(one.products, two.products, strict=True)
    )
    return Work(products, one.parameters, round(at(one.activation_bytes, two.activation_bytes)), one.norms)


def _of_one_core(recipe: Recipe, batch: int) -> Recipe:
    """Without what a trace does not depend on, so that a sweep traces once."""
    return replace(
        recipe,
        batch_global=batch,
        name="count",
        torus="1x1",
        precision="bf16",
        steps_per_dispatch=1,
        model=replace(recipe.model, norm_span=batch, classes=recipe.model.classes or 1000),
    )


@lru_cache(maxsize=8)
def _trace(recipe: Recipe) -> Work:
    mesh = build_mesh(Torus(Shape(1, 1)), jax.devices()[:1])
    step = build_step(recipe, mesh)
    state = jax.eval_shape(step.init)
    traced = step.train.trace(state, batch_shapes(recipe, step, steps=1))
    forward = step.predict.trace(state, batch_shapes(recipe, step, steps=None)["image"])
    activation_bytes = sum(_bytes(equation.outvars[0].aval) for equation in _equations(forward.jaxpr.jaxpr))
    products = tuple(map(_product, _equations(traced.jaxpr.jaxpr)))
    parameters = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    norms = len(jax.tree.leaves(state.stats)) // 2  # a mean and a variance each
    return Work(products, parameters, activation_bytes, norms)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Every convolution and matrix product, also inside loops, maps and custom gradients; a norm, which is a product of
    vectors, is none."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("conv_general_dilated", "dot_general") and equation.outvars[0].aval.ndim > 1:
            yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)


def _product(equation: Any) -> Product:
    lhs, rhs = (variable.aval for variable in equation.invars)
    out = equation.outvars[0].aval
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        inner = math.prod(lhs.shape[axis] for axis in contracted)
    else:
        numbers = equation.params["dimension_numbers"]
        # A dilated input is mostly zeros that nobody multiplies.
        inner = rhs.size / rhs.shape[numbers.rhs_spec[0]] / math.prod(equation.params["lhs_dilation"])
    return Product(2.0 * out.size * inner, float(sum(map(_bytes, (lhs, rhs, out)))))


def _bytes(array: Any) -> int:
    return int(array.size * array.dtype.itemsize)
