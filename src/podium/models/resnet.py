"""ResNets v1.5 (the stride sits in the 3×3 convolution) as the paper trained them, and small ones for 32–64 px
images.

Convolutions compute in `dtype` with fp32 parameters; the logits are fp32. Layers of stride 2 are padded alike on both
sides, as torchvision has them, or as XLA's "SAME" does, more at the end than at the start. The classifier's weights
start with σ = 0.01, and the last scale of every block with `last_scale`: at zero a block starts as the identity, which
is the stable start for large batches; at one it learns sooner, which is what a run of a few epochs needs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from podium.models import pool
from podium.models.batch_norm import DistributedBatchNorm
from podium.models.columns import convolve, symmetric
from podium.models.convolution import Conv
from podium.models.dropout import Dropout, whole_examples
from podium.models.max_pool import max_pool
from podium.models.normalised import normalised
from podium.models.stem import packed_stem

he_normal = nnx.initializers.variance_scaling(2.0, "fan_out", "truncated_normal")
Stem = Literal["conv7", "space_to_depth", "conv3", "fold3"]
Padding = Literal["symmetric", "same"]


class NormFactory(Protocol):
    """Makes a norm layer for a number of channels: `functools.partial(DistributedBatchNorm, span=…)`."""

    def __call__(
        self, channels: int, *, scale_init: nnx.Initializer = ..., rngs: nnx.Rngs
    ) -> Callable[[jax.Array], jax.Array]: ...


@dataclass(frozen=True)
class Shape:
    """Blocks per stage, channels of the first stage (they double with each stage), and the kind of block."""

    blocks: tuple[int, ...]
    width: int = 64
    bottleneck: bool = False


SHAPES = {
    "resnet18": Shape((2, 2, 2, 2)),
    "resnet34": Shape((3, 4, 6, 3)),
    "resnet50": Shape((3, 4, 6, 3), bottleneck=True),
    "resnet101": Shape((3, 4, 23, 3), bottleneck=True),
    "resnet152": Shape((3, 8, 36, 3), bottleneck=True),
    # For 32–64 px images, with stem = "conv3".
    "resnet8": Shape((1, 1, 1), width=32),
    "resnet14": Shape((2, 2, 2), width=32),
    "resnet20": Shape((3, 3, 3), width=32),
    "resnet8-wide": Shape((1, 1, 1)),
    "resnet14-wide": Shape((2, 2, 2)),
}


@dataclass(frozen=True)
class Layers:
    """How the layers of a network are made."""

    norm: NormFactory
    dtype: jnp.dtype
    padding: Padding = "symmetric"
    on_gpu: bool = False
    dropout: float = 0.0
    """The share of values that the classifier does not see."""
    depth_drop: float = 0.0
    """The share of examples that pass over the last block; `at_depth` makes it a block's own."""
    blur: bool = False
    apart: bool = False
    """Whether gradients of strided convolutions treat even and odd rows and columns apart (`columns.convolve`)."""

    def at_depth(self, share: float) -> "Layers":
        """Those of a block behind this share of the blocks."""
        return replace(self, depth_drop=share * self.depth_drop)

    def conv(
        self, channels: tuple[int, int], kernel: int, stride: int = 1, *, init: Any = he_normal, rngs: nnx.Rngs
    ) -> nnx.Conv:
        """A convolution from and to so many channels."""
        return Conv(
            *channels,
            (kernel, kernel),
            stride,
            padding=self.around(kernel),
            use_bias=False,
            dtype=self.dtype,
            kernel_init=init,
            rngs=rngs,
        )

    def around(self, kernel: int) -> Literal["SAME"] | tuple[tuple[int, int], tuple[int, int]]:
        """The padding of a kernel's rows and columns."""
        return "SAME" if self.padding == "same" else (symmetric(kernel), symmetric(kernel))


class Block(nnx.Module):
    """A residual block: two 3×3 convolutions, or 1×1 → 3×3 → 1×1 with four times the channels out."""

    def __init__(
        self,
        c_in: int,
        width: int,
        *,
        stride: int,
        bottleneck: bool,
        last_scale: float,
        layers: Layers,
        rngs: nnx.Rngs,
    ) -> None:
        c_out = width * 4 if bottleneck else width
        # (kernel, stride, channels) of each convolution of the branch.
        plan = [(1, 1, width), (3, stride, width), (1, 1, c_out)] if bottleneck else [(3, stride, width), (3, 1, c_out)]
        self.convs: nnx.List[Any] = nnx.List()
        self.norms: nnx.List[Any] = nnx.List()
        channels = c_in
        for i, (kernel, step, out) in enumerate(plan):
            scale = nnx.initializers.constant(last_scale if i == len(plan) - 1 else 1.0)
            self.convs.append(layers.conv((channels, out), kernel, step, rngs=rngs))
            self.norms.append(layers.norm(out, scale_init=scale, rngs=rngs))
            channels = out
        self.blurs = layers.blur and stride != 1
        self.apart = layers.apart
        self.drop = whole_examples(layers.depth_drop) if layers.depth_drop else None
        self.project = stride != 1 or c_in != c_out
        if self.project:
            self.shortcut = layers.conv((c_in, c_out), 1, stride, rngs=rngs)
            self.shortcut_norm = layers.norm(c_out, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = x
        *layers, (last, last_norm) = zip(self.convs, self.norms, strict=True)
        for layer, norm in layers:
            y = normalised(norm, self._convolved(layer, y))
        y = convolve(last, y)
        shortcut = normalised(self.shortcut_norm, self._convolved(self.shortcut, x), relu=False) if self.project else x
        if self.drop is None:
            return normalised(last_norm, y, shortcut=shortcut)
        return nnx.relu(shortcut + self.drop(normalised(last_norm, y, relu=False)))

    def _convolved(self, layer: Any, x: jax.Array) -> jax.Array:
        x = blurred(x, layer.in_features) if self.blurs and layer.strides == 2 else x
        return convolve(layer, x, apart=self.apart)


class ResNet(nnx.Module):
    """[batch, height, width, 3] normalised images → [batch, classes] fp32 logits."""

    def __init__(
        self,
        shape: Shape,
        classes: int,
        *,
        stem: Stem,
        layers: Layers,
        last_scale: float = 0.0,
        rngs: nnx.Rngs,
    ) -> None:
        self.stem = stem
        self.layers = layers
        # Folded, 2×2 pixels become channels, and a 4×4 convolution sees the same 8×8 window: the same work, laid out
        # for hardware that wants many channels (arXiv 2011.03641).
        c_in, kernel, stride = {
            "conv7": (3, 7, 2),
            "space_to_depth": (12, 4, 1),
            "conv3": (3, 3, 1),
            "fold3": (12, 3, 1),
        }[stem]
        self.first = layers.conv((c_in, shape.width), kernel, stride, rngs=rngs)
        self.first_norm = layers.norm(shape.width, rngs=rngs)
        self.blocks: nnx.List[Any] = nnx.List()
        channels = shape.width
        for stage, blocks in enumerate(shape.blocks):
            width = shape.width * 2**stage
            for i in range(blocks):
                block = Block(
                    channels,
                    width,
                    stride=2 if stage > 0 and i == 0 else 1,
                    bottleneck=shape.bottleneck,
                    last_scale=last_scale,
                    layers=layers.at_depth(len(self.blocks) / max(1, sum(shape.blocks) - 1)),
                    rngs=rngs,
                )
                self.blocks.append(block)
                channels = width * 4 if shape.bottleneck else width
        self.dropout = Dropout(layers.dropout) if layers.dropout else None
        self.classifier = classifier(channels, classes, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        means = self.features(x).astype(jnp.float32).mean((1, 2))
        return self.classifier(means if self.dropout is None else self.dropout(means))

    def features(self, x: jax.Array) -> jax.Array:
        """What the classifier takes the mean of. Packed images (`recipe.batch`) are computed in columns side by side up
        to the first stride, and plain ones as they are."""
        x = x.astype(self.layers.dtype)
        x = self._stem(x) if x.shape[-1] == 3 else self._packed_stem(x)
        for block in self.blocks:
            x = block(x)
        return x

    def _stem(self, x: jax.Array) -> jax.Array:
        if self.stem in ("space_to_depth", "fold3"):
            x = space_to_depth(x)
        x = normalised(self.first_norm, self.first(x))
        return self.pool(x) if self.stem in ("conv7", "space_to_depth") else x

    def _packed_stem(self, x: jax.Array) -> jax.Array:
        assert isinstance(self.first_norm, DistributedBatchNorm)
        return packed_stem(self.first, self.first_norm, x.transpose(2, 0, 1, 3))

    def pool(self, x: jax.Array) -> jax.Array:
        around = self.layers.around(3)
        if self.layers.on_gpu and around != "SAME":
            return max_pool(x, around)
        return pool.max_pool(x, around)


def space_to_depth(x: jax.Array) -> jax.Array:
    """[b, h, w, c] → [b, h/2, w/2, 4c]."""
    b, h, w, c = x.shape
    return x.reshape(b, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(b, h // 2, w // 2, 4 * c)


def blurred(x: jax.Array, channels: int) -> jax.Array:
    """Each value a mean of its 3×3 neighbours, weighed 1:2:1 both ways, zeros around. Of columns side by side
    (`columns`) it gives plain ones."""
    x = x.reshape(*x.shape[:2], -1, channels)
    for axis in (1, 2):
        around = [(0, 0)] * 4
        around[axis] = (1, 1)
        wide, n = jnp.pad(x, around), x.shape[axis]
        left, middle, right = (lax.slice_in_dim(wide, k, k + n, axis=axis) for k in range(3))
        x = (left + 2 * middle + right) / 4
    return x


def classifier(channels: int, classes: int, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(channels, classes, kernel_init=nnx.initializers.normal(0.01), rngs=rngs)
