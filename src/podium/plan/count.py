"""What a step must do, counted from its own trace without any compiler: FLOPs and bytes of every convolution and matrix
product, parameters, and the activations that the backward pass needs. `Work.roofline_seconds` holds each of them
against a chip's peaks. This is all that is known for GPUs, for chips whose clock is not published, and without
libtpu.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import jax

from podium.mesh import build_mesh
from podium.plan.machines import Chip
from podium.recipe.augmentation import Augment
from podium.recipe.schema import Recipe
from podium.recipe.torus import Shape, Torus
from podium.step import work
from podium.step.programs import batch_shapes, build_step
from podium.step.work import Product


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
    """Without what the counted products do not depend on, so that a sweep traces once, and that one image can be. The
    activations are counted in the forward pass, which is then of the images that are trained on."""
    return replace(
        recipe,
        batch_global=batch,
        name="count",
        torus="1x1",
        precision="bf16",
        steps_per_dispatch=1,
        accumulate=1,
        augment=Augment(),
        evaluate_flips=False,
        data=replace(recipe.data, eval_size=0),
        model=replace(recipe.model, norm_span=batch, classes=recipe.model.classes or 1000),
    )


@lru_cache(maxsize=8)
def _trace(recipe: Recipe) -> Work:
    mesh = build_mesh(Torus(Shape(1, 1)), jax.devices()[:1])
    step = build_step(recipe, mesh)
    state = jax.eval_shape(step.init)
    traced = step.train.trace(state, batch_shapes(recipe, step, steps=1))
    forward = step.predict.trace(state, batch_shapes(recipe, step, steps=None)["image"])
    activation_bytes = sum(
        work.array_bytes(equation.outvars[0].aval) for equation in work.equations(forward.jaxpr.jaxpr)
    )
    products = tuple(map(work.product, work.equations(traced.jaxpr.jaxpr)))
    portable = jax.eval_shape(step.portable, state)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(portable.params))
    norms = len(jax.tree.leaves(portable.stats)) // 2  # a mean and a variance each
    return Work(products, parameters, activation_bytes, norms)
