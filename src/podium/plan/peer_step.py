"""The step that others would write for the same pod: a ResNet-50 in `flax.linen` with `optax`, as flax's ImageNet
example has it, on the same mesh as Podium's. `podium bench pod` compiles it beside Podium's step, and `plan --check`
plans published runs with it, since their programs were not Podium's. What those submissions added to the plain form
(images in another layout or space-to-depth, sums of gradients in bfloat16) are its options. It is a peer to compare
with, and nothing trains with it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from podium.mesh import AXES, TILE_AXES, replicated_sharding
from podium.plan.peer import Peer

_CLASSES = 1000


class PeerStep(NamedTuple):
    """A jitted step and the shapes that it takes."""

    train: Any
    arguments: tuple[Any, ...]


class Bottleneck(nn.Module):
    """1×1 → 3×3 → 1×1 with four times the channels out, added to its input."""

    channels: int
    stride: int
    conv: Callable[..., nn.Module]
    norm: Callable[..., nn.Module]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.relu(self.norm()(self.conv(self.channels, (1, 1))(x)))
        y = nn.relu(self.norm()(self.conv(self.channels, (3, 3), (self.stride, self.stride))(y)))
        y = self.norm(scale_init=nn.initializers.zeros_init())(self.conv(4 * self.channels, (1, 1))(y))
        if x.shape != y.shape:
            x = self.norm()(self.conv(4 * self.channels, (1, 1), (self.stride, self.stride))(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    """Images in bfloat16 → logits; batch norm over the mesh axes `norm_axes`."""

    blocks: tuple[int, ...]
    stem: str
    norm_axes: tuple[str, ...] | None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        conv = partial(nn.Conv, use_bias=False, dtype=jnp.bfloat16)
        norm = partial(
            nn.BatchNorm,
            use_running_average=False,
            momentum=0.9,
            epsilon=1e-5,
            dtype=jnp.bfloat16,
            axis_name=self.norm_axes,  # type: ignore[arg-type]  # lax.pmean takes several as well as one
        )
        if self.stem == "conv7":
            x = conv(64, (7, 7), (2, 2), padding=[(3, 3), (3, 3)])(x)
        else:
            x = conv(64, (4, 4), padding=[(2, 1), (2, 1)])(x)
        x = nn.max_pool(nn.relu(norm()(x)), (3, 3), strides=(2, 2), padding="SAME")
        for stage, blocks in enumerate(self.blocks):
            for k in range(blocks):
                x = Bottleneck(64 * 2**stage, 2 if stage and k == 0 else 1, conv, norm)(x)
        return nn.Dense(_CLASSES, dtype=jnp.bfloat16)(jnp.mean(x, (1, 2)))


def build_peer(peer: Peer, mesh: Mesh) -> PeerStep:
    """The peer's step on `mesh`, whose tiles hold its norm span."""
    norm_axes: tuple[str, ...] | None = TILE_AXES if peer.norm_span else AXES
    if peer.norm_span and peer.norm_span <= peer.batch_global // mesh.size:
        norm_axes = None
    model = ResNet(peer.blocks, peer.stem, norm_axes)
    transform = _transform(peer)
    size, layout = peer.image_size, peer.image_layout
    image = (size, size, 3) if peer.stem == "conv7" else (size // 2, size // 2, 12)
    delivered = {"N": peer.batch_global, "H": image[0], "W": image[1], "C": image[2]}

    def initialise() -> dict[str, Any]:
        variables = model.copy(norm_axes=None).init(jax.random.key(0), jnp.zeros((1, *image), jnp.bfloat16))
        return {**variables, "optimizer": transform.init(variables["params"]), "step": jnp.zeros((), jnp.int32)}

    def train(state: dict[str, Any], batch: dict[str, jax.Array]) -> tuple[dict[str, Any], dict[str, jax.Array]]:
        images = batch["image"].transpose([layout.index(axis) for axis in "NHWC"])

        def objective(params: Any) -> tuple[jax.Array, Any]:
            variables = {"params": params, "batch_stats": state["batch_stats"]}
            logits, changed = model.apply(variables, images, mutable=["batch_stats"])
            loss = _cross_entropy(peer, logits, batch["label"])
            return loss + _penalty(peer, params), (changed["batch_stats"], logits, loss)

        (_, (stats, logits, loss)), gradients = jax.value_and_grad(objective, has_aux=True)(state["params"])
        gradients = _mean(gradients, jnp.bfloat16 if peer.gradient_sum == "bf16" else jnp.float32)
        updates, optimizer = transform.update(gradients, state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        right = jnp.mean((jnp.argmax(logits, -1) == batch["label"]).astype(jnp.float32))
        new = {"params": params, "batch_stats": stats, "optimizer": optimizer, "step": state["step"] + 1}
        return new, lax.pmean({"loss": loss, "accuracy": right}, AXES)

    # As under `pmap`, which flax's example uses: every core's gradients are its own until they are averaged.
    splits = {"image": P(*(AXES if axis == "N" else None for axis in layout)), "label": P(AXES)}
    mapped = jax.shard_map(train, mesh=mesh, in_specs=(P(), splits), out_specs=(P(), P()), check_vma=False)
    everywhere = replicated_sharding(mesh)
    step = jax.jit(mapped, out_shardings=everywhere, donate_argnums=0)
    state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere), jax.eval_shape(initialise)
    )
    batch = {
        "image": jax.ShapeDtypeStruct(
            tuple(delivered[axis] for axis in layout), jnp.bfloat16, sharding=NamedSharding(mesh, splits["image"])
        ),
        "label": jax.ShapeDtypeStruct((peer.batch_global,), jnp.int32, sharding=NamedSharding(mesh, splits["label"])),
    }
    return PeerStep(step, (state, batch))


def _transform(peer: Peer) -> optax.GradientTransformation:
    """The paper's schedule for LARS, a cosine for SGD; both leave batch norm and biases out of decay and trust."""
    if peer.optimizer == "sgd":
        return optax.sgd(optax.warmup_cosine_decay_schedule(0.0, 12.8, 200, 3600), momentum=0.9, nesterov=True)
    rate = optax.join_schedules(
        [optax.linear_schedule(0.0, 34.0, 480), optax.polynomial_schedule(34.0, 0.0, 2, 3120)], [480]
    )
    return optax.lars(rate, weight_decay=1e-4, weight_decay_mask=_weights, trust_ratio_mask=_weights, momentum=0.9)


def _weights(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def _cross_entropy(peer: Peer, logits: jax.Array, label: jax.Array) -> jax.Array:
    target = jax.nn.one_hot(label, _CLASSES)
    return optax.softmax_cross_entropy(logits, optax.smooth_labels(target, peer.label_smoothing)).mean()


def _penalty(peer: Peer, params: Any) -> jax.Array | float:
    """Weight decay in the loss, as the example has it for SGD; LARS decays weights itself."""
    if peer.optimizer == "lars":
        return 0.0
    return 0.5e-4 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params) if leaf.ndim > 1)


def _mean(gradients: Any, dtype: Any) -> Any:
    """Averaged over the pod, on the wires in `dtype`."""
    sent = lax.pmean(jax.tree.map(lambda leaf: leaf.astype(dtype), gradients), AXES)
    return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), sent, gradients)
