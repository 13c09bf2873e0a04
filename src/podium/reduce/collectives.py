"""What it means to sum over the devices of a torus: the axes, the contract every reduction keeps, and XLA's own. A
`Reduction` is an object that the training step is given; `routed` has the others. All of them cut a buffer alike,
so that sharded state can move from one to another: device d in the order (lane, y, x) owns the d-th of equal shards,
the last padded with zeros. They run inside `jax.shard_map` on flat buffers and know nothing of gradients or
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
        """In the order of the shards, slowest first."""
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
    """Sums float32 vectors of any length. Results are typed as what they are: equal on all devices, or varying."""

    @property
    def axes(self) -> TorusAxes: ...

    def all_reduce(self, flat: jax.Array) -> jax.Array:
        """The sum over all devices, on all devices."""

    def reduce_scatter(self, flat: jax.Array) -> jax.Array:
        """This device's shard of the sum: `own_shard(all_reduce(flat))`."""

    def all_gather(self, shard: jax.Array, size: int) -> jax.Array:
        """The first `size` elements of all shards one after the other, on all devices, bit for bit."""

    def sum_over_hosts(self, share: jax.Array) -> jax.Array:
        """The sum, over all hosts, of what each lane holds, on the same lane of all hosts."""


@dataclass(frozen=True)
class Xla:
    """What the compiler makes of psum. On a TPU pod that is the two-colour 2-D algorithm; over sockets, one ring, one
    direction."""

    axes: TorusAxes

    def all_reduce(self, flat: jax.Array) -> jax.Array:
        return lax.psum(varying(flat, self.axes), self.axes.all)

    def reduce_scatter(self, flat: jax.Array) -> jax.Array:
        return lax.psum_scatter(padded(varying(flat, self.axes), self.axes.devices), self.axes.all, tiled=True)

    def all_gather(self, shard: jax.Array, size: int) -> jax.Array:
        whole = lax.all_gather(varying(shard, self.axes), self.axes.all, tiled=True)
        return declare_replicated(whole[:size], self.axes.all)

    def sum_over_hosts(self, share: jax.Array) -> jax.Array:
        return lax.psum(varying(share, self.axes), self.axes.hosts)


def own_shard(flat: jax.Array, axes: TorusAxes) -> jax.Array:
    """The part of a replicated vector that this device owns."""
    shards = padded(varying(flat, axes), axes.devices).reshape(axes.devices, -1)
    return lax.dynamic_index_in_dim(shards, lax.axis_index(axes.all), keepdims=False)


def shard_size(size: int, devices: int) -> int:
    return -(-size // devices)


def padded(flat: jax.Array, devices: int) -> jax.Array:
    """With zeros at its end, so that `devices` divides it."""
    return jnp.pad(flat, (0, shard_size(flat.size, devices) * devices - flat.size))


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
