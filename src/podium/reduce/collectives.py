"""What it means to sum over the devices of a torus: the axes, the contract every reduction keeps, and XLA's own. A
`Reduction` is an object that the training step is given; `routed` has the others. All of them cut a buffer alike,
so that sharded state can move from one to another: device d in the order (lane, y, x) owns the d-th of equal shards
along the first axis, the last padded with zeros. They run inside `jax.shard_map` and know nothing of gradients or
optimizers."""

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from podium.reduce.declare_replicated import declare_replicated


@dataclass(frozen=True)
class TorusAxes:
    """The mesh axes of a torus of hosts: the ring along Y, the ring along X, and the devices of one host, its
    lanes."""

    y: tuple[str, ...]
    x: tuple[str, ...]
    lane: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """The axes in the order of the shards, slowest first."""
        return self.lane + self.y + self.x

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.y + self.x

    def sizes(self) -> tuple[int, int, int]:
        """(rows, cols, lanes) of the mesh in scope."""
        return lax.axis_size(self.y), lax.axis_size(self.x), lax.axis_size(self.lane) if self.lane else 1

    @property
    def devices(self) -> int:
        return lax.axis_size(self.all)


class Reduction(Protocol):
    """Sums float32 vectors of any length; scatters and gathers also buffers of several axes, by their first, if that
    divides. Results are typed as what they are: equal on all devices, or varying."""

    @property
    def axes(self) -> TorusAxes: ...

    def all_reduce(self, flat: jax.Array) -> jax.Array:
        """The sum over all devices, on all devices."""

    def reduce_scatter(self, buffer: jax.Array) -> jax.Array:
        """This device's shard of the sum: `own_shard(all_reduce(buffer))`."""

    def all_gather(self, shard: jax.Array, size: int) -> jax.Array:
        """The first `size` entries of all shards one after the other, on all devices, bit for bit."""

    def sum_over_hosts(self, share: jax.Array) -> jax.Array:
        """The sum, over all hosts, of what each lane holds, on the same lane of all hosts."""


@dataclass(frozen=True)
class Xla:
    """What the compiler makes of psum. On a TPU pod that is the two-colour 2-D algorithm; over sockets, one ring, one
    direction. Scatters and gathers go along one ring of the torus after the other: asked for all axes at once, the
    TPU compiler makes full sums of them."""

    axes: TorusAxes
    wire: jax.typing.DTypeLike = jnp.float32
    """What a sum travels and is added as; the result is float32."""

    def all_reduce(self, flat: jax.Array) -> jax.Array:
        return lax.psum(rounded(varying(flat, self.axes), self.wire), self.axes.all).astype(flat.dtype)

    def reduce_scatter(self, buffer: jax.Array) -> jax.Array:
        total = padded(varying(buffer, self.axes), self.axes.devices).astype(self.wire)
        for ring in self._rings():
            total = lax.psum_scatter(total, ring, tiled=True)
        return total.astype(buffer.dtype)

    def all_gather(self, shard: jax.Array, size: int) -> jax.Array:
        shard = varying(shard, self.axes)
        for ring in reversed(self._rings()):
            shard = lax.all_gather(shard, ring, tiled=True)
        return declare_replicated(shard[:size], self.axes.all)

    def _rings(self) -> list[tuple[str, ...]]:
        """The rings in the order of the shards, slowest first; a ring of one device does not count."""
        return [ring for ring in (self.axes.lane, self.axes.y, self.axes.x) if ring and lax.axis_size(ring) > 1]

    def sum_over_hosts(self, share: jax.Array) -> jax.Array:
        return lax.psum(rounded(varying(share, self.axes), self.wire), self.axes.hosts).astype(share.dtype)


def rounded(x: jax.Array, wire: jax.typing.DTypeLike) -> jax.Array:
    """x as it travels. Where a platform adds bf16 in fp32, as XLA:CPU does, the compiler may leave out a conversion to
    bf16 and back; it keeps a rounding that is asked for by name."""
    if x.dtype == wire:
        return x
    format = jnp.finfo(wire)
    return lax.reduce_precision(x, format.nexp, format.nmant).astype(wire)


def own_shard(buffer: jax.Array, axes: TorusAxes) -> jax.Array:
    """The part of a replicated buffer that this device owns."""
    whole = padded(varying(buffer, axes), axes.devices)
    return lax.dynamic_index_in_dim(
        whole.reshape(axes.devices, -1, *buffer.shape[1:]), own_number(axes), keepdims=False
    )


def own_number(axes: TorusAxes) -> jax.Array:
    """This device's place in the order of the shards."""
    return lax.axis_index(axes.all)


def shard_size(size: int, devices: int) -> int:
    return -(-size // devices)


def padded(buffer: jax.Array, devices: int) -> jax.Array:
    """Appends zeros to the first axis, so that `devices` divides it."""
    missing = shard_size(buffer.shape[0], devices) * devices - buffer.shape[0]
    return jnp.pad(buffer, [(0, missing)] + [(0, 0)] * (buffer.ndim - 1))


def varying(x: jax.Array, axes: TorusAxes) -> jax.Array:
    """x, typed as possibly different on each device. JAX sums over an axis only what varies along it."""
    return lax.pcast(x, tuple(name for name in axes.all if name not in jax.typeof(x).mat.varying), to="varying")


def permute(x: jax.Array, axes: TorusAxes, pairs: tuple[tuple[int, int], ...]) -> jax.Array:
    """`ppermute` between devices numbered in the order of `axes.all`.

    JAX 0.10 numbers the devices of a ppermute in the order of the mesh, whatever the order of the names, while
    axis_index, psum_scatter and all_gather follow the names; so the names go in mesh order, where both agree."""
    in_mesh_order = tuple(name for name in jax.sharding.get_abstract_mesh().axis_names if name in axes.all)
    places = np.arange(axes.devices).reshape([lax.axis_size(name) for name in in_mesh_order])
    number = places.transpose([in_mesh_order.index(name) for name in axes.all]).reshape(-1)
    return lax.ppermute(x, in_mesh_order, [(int(number[source]), int(number[to])) for source, to in pairs])
