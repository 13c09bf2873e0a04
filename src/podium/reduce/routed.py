"""Runs routes on devices: each tick is one `ppermute` over all of them, each lane of a host going its own way.
XLA:CPU runs collectives one after the other, so two permutations in opposite directions take twice the time of one; a
single permutation in which lane 0 sends right, lane 1 left, lane 2 down and lane 3 up drives all links of a host at
once. Rows are summed as they travel and never copied between ticks: what arrives is added to the own row and sent
on."""

from dataclasses import dataclass, replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from podium.reduce.collectives import TorusAxes, padded, permute, rounded, varying
from podium.reduce.colours import torus_routes
from podium.reduce.declare_replicated import declare_replicated
from podium.reduce.routes import Routes, Slot, edges, ring_routes, slots
from podium.reduce.swing import is_swinging, swing_routes
from podium.reduce.woven import Woven, woven_routes


@dataclass(frozen=True)
class Routed:
    """A `Reduction` along `routes`.

    The lanes of a host sum among themselves first, and each carries its share. `pieces` cuts every message in parts,
    so that one can be added while the next is on the link. Messages of a sum travel as `wire` and are added in
    float32."""

    axes: TorusAxes
    routes: Routes
    wire: jax.typing.DTypeLike = jnp.float32
    pieces: int = 1

    def all_reduce(self, flat: jax.Array) -> jax.Array:
        share = self._sum_over_hosts(self._lane_share(flat))
        return declare_replicated(self._gather_lanes(share)[: flat.size], self.axes.all)

    def sum_over_hosts(self, share: jax.Array) -> jax.Array:
        rows, cols, _ = self.axes.sizes()
        total = self._sum_over_hosts(padded(varying(share, self.axes), rows * cols))
        return declare_replicated(total[: share.size], self.axes.hosts)

    def reduce_scatter(self, buffer: jax.Array) -> jax.Array:
        share = self._lane_share(buffer.reshape(-1))
        owned = self._scatter(share)
        chains = self._chains(share.size)
        at_home = [permute(row, self.axes, slot.home) for row, (slot, _) in zip(owned, chains, strict=True)]
        return jnp.concatenate(at_home).reshape(-1, *buffer.shape[1:])

    def all_gather(self, shard: jax.Array, size: int) -> jax.Array:
        flat = varying(shard.reshape(-1), self.axes)
        rows, cols, _ = self.axes.sizes()
        chains = self._chains(flat.size * rows * cols)
        owned = [permute(flat[columns], self.axes, _reverse(slot.home)) for slot, columns in chains]
        whole = self._gather_lanes(self._gather(owned)).reshape(-1, *shard.shape[1:])
        return declare_replicated(whole[:size], self.axes.all)

    def _lane_share(self, flat: jax.Array) -> jax.Array:
        flat = padded(varying(flat, self.axes), self.axes.devices)
        return lax.psum_scatter(flat, self.axes.lane, tiled=True) if self.axes.lane else flat

    def _gather_lanes(self, share: jax.Array) -> jax.Array:
        return lax.all_gather(share, self.axes.lane, tiled=True) if self.axes.lane else share

    def _sum_over_hosts(self, share: jax.Array) -> jax.Array:
        # Rounded to the wire's type before the gather, the owner's copy is the same as everyone's.
        return self._gather([row.astype(self.wire) for row in self._scatter(share)]).astype(share.dtype)

    def _chains(self, share_size: int) -> list[tuple[Slot, slice]]:
        """Which columns of the rows go along which chain of ticks, none of them empty unless there is nothing."""
        rows, cols, lanes = self.axes.sizes()
        parallel = slots(self.routes, rows, cols, lanes=lanes)
        columns = share_size // (rows * cols)
        chains = []
        for slot, (first, last) in zip(parallel, pairwise(edges(parallel, columns)), strict=True):
            cuts = np.linspace(first, last, min(self.pieces, last - first) + 1).astype(int).tolist()
            chains += [(slot, slice(*cut)) for cut in pairwise(cuts)]
        return chains or [(parallel[0], slice(0, columns))]

    def _scatter(self, share: jax.Array) -> list[jax.Array]:
        """The row that this device ends up owning, chain by chain. `share` is one row per host, in a vector."""
        rows, cols, _ = self.axes.sizes()
        chains = self._chains(share.size)
        device = lax.axis_index(self.axes.all)
        table = share.reshape(rows * cols, -1)
        held = [_Held(table[:, columns]) for _, columns in chains]
        for steps in zip(*(slot.steps for slot, _ in chains), strict=True):
            for k, step in enumerate(steps):
                held[k], message = held[k].take(_Window(step.send, step.rows), device)
                got = permute(message.astype(self.wire), self.axes, step.pairs).astype(share.dtype)
                held[k] = held[k].add(_Window(step.receive, step.received), got, device)
        return [part.take(_own(slot), device)[1][0] for part, (slot, _) in zip(held, chains, strict=True)]

    def _gather(self, owned: list[jax.Array]) -> jax.Array:
        """The routes backwards: every row goes back along the way its sum came."""
        rows, cols, _ = self.axes.sizes()
        chains = self._chains(rows * cols * sum(row.size for row in owned))
        device = lax.axis_index(self.axes.all)
        held = []
        for row, (slot, _) in zip(owned, chains, strict=True):
            empty = varying(jnp.zeros((rows * cols, row.size), row.dtype), self.axes)
            held.append(_Held(empty).put(_own(slot), row[None], device))
        for steps in zip(*(slot.steps[::-1] for slot, _ in chains), strict=True):
            for k, step in enumerate(steps):
                message = held[k].read(_Window(step.receive, step.received), device)
                got = permute(message, self.axes, _reverse(step.pairs))
                held[k] = held[k].put(_Window(step.send, step.rows), got, device)
        return jnp.concatenate([part.table for part in held], axis=1).reshape(-1)


@dataclass(frozen=True)
class Exchanged(Routed):
    """Like `Routed`, but to sum is to exchange: at each tick both nodes of a pair send all they have. Fewer ticks and
    more bytes, for small sums. Scatters and gathers go along the routes."""

    def _sum_over_hosts(self, share: jax.Array) -> jax.Array:
        """Both ends of a pair add the same two numbers, each rounded for the wire, so both have the same sum."""
        rows, cols, _ = self.axes.sizes()
        if not is_swinging(rows, cols):
            return super()._sum_over_hosts(share)
        table = share.reshape(rows * cols, -1)
        sums = []
        for slot, columns in self._chains(share.size):
            total = table[:, columns]
            for step in slot.steps:
                message = rounded(total, self.wire)
                total = message.astype(share.dtype) + permute(message, self.axes, step.pairs).astype(share.dtype)
            sums.append(total)
        return jnp.concatenate(sums, axis=1).reshape(-1)


def ring(axes: TorusAxes, wire: jax.typing.DTypeLike = jnp.float32, pieces: int = 1) -> Routed:
    """One ring through all hosts, in one direction."""
    return Routed(axes, ring_routes, wire, pieces)


def torus(axes: TorusAxes, wire: jax.typing.DTypeLike = jnp.float32, pieces: int = 1) -> Routed:
    """The paper's: two colours, two phases, both directions."""
    return Routed(axes, torus_routes, wire, pieces)


def woven(axes: TorusAxes, wire: jax.typing.DTypeLike = jnp.float32, pieces: int = 1) -> Routed:
    """Single rows over all links, on a torus of any shape."""
    return Routed(axes, woven_routes, wire, pieces)


def around(axes: TorusAxes, holes: Woven, wire: jax.typing.DTypeLike = jnp.float32) -> Routed:
    """Woven routes over the living hosts of a torus; `axes` has just these, in any rectangle."""
    return Routed(axes, holes, wire)


def swing(axes: TorusAxes, wire: jax.typing.DTypeLike = jnp.float32, pieces: int = 1) -> Routed:
    """Swing, for middle sizes: few ticks, some over several links."""
    return Routed(axes, swing_routes, wire, pieces)


def exchange(axes: TorusAxes, wire: jax.typing.DTypeLike = jnp.float32) -> Routed:
    """Swing's pairs exchanging all they have, for small sums."""
    return Exchanged(axes, swing_routes, wire)


@dataclass(frozen=True)
class _Window:
    """Rows of a table, on device d `rows[d]` of them from `start[d]` on.

    All devices move as many rows as the one that has most (in a torus that is not square, the colours differ); the
    others' window holds rows around their own that do not count, and both ends of a link shift it alike where it
    would leave the table."""

    start: np.ndarray  # int [devices]
    rows: np.ndarray  # int [devices]

    @property
    def width(self) -> int:
        return int(self.rows.max())

    def same(self, other: "_Window") -> bool:
        return np.array_equal(self.start, other.start) and np.array_equal(self.rows, other.rows)

    def read(self, table: jax.Array, device: jax.Array) -> jax.Array:
        return lax.dynamic_slice_in_dim(table, _of(self.start, device), self.width)

    def write(self, table: jax.Array, values: jax.Array, device: jax.Array) -> jax.Array:
        if (self.rows != self.width).any():
            first = _of(np.minimum(self.start, table.shape[0] - self.width), device)
            row = first + jnp.arange(self.width)
            counts = (_of(self.start, device) <= row) & (row < _of(self.start + self.rows, device))
            values = jnp.where(counts[:, None], values, self.read(table, device))
        return lax.dynamic_update_slice_in_dim(table, values, _of(self.start, device), 0)


@dataclass(frozen=True)
class _Held:
    """A table, and the rows that came last. Most are sent on at the next tick: they go as they are, without a copy
    into the table."""

    table: jax.Array
    window: _Window | None = None
    values: jax.Array | None = None

    def take(self, window: _Window, device: jax.Array) -> "tuple[_Held, jax.Array]":
        """Rows to send on or keep; rows that came last and are not among these are put into the table first."""
        if self.window is None or self.values is None:
            return self, window.read(self.table, device)
        if self.window.same(window):
            return _Held(self.table), self.values
        table = self.window.write(self.table, self.values, device)
        return _Held(table), window.read(table, device)

    def add(self, window: _Window, got: jax.Array, device: jax.Array) -> "_Held":
        return replace(self, window=window, values=window.read(self.table, device) + got)

    def read(self, window: _Window, device: jax.Array) -> jax.Array:
        if self.window is not None and self.values is not None and self.window.same(window):
            return self.values
        return window.read(self.table, device)

    def put(self, window: _Window, values: jax.Array, device: jax.Array) -> "_Held":
        return _Held(window.write(self.table, values, device), window, values)


def _own(slot: Slot) -> _Window:
    return _Window(slot.own, np.ones_like(slot.own))


def _of(per_device: np.ndarray, device: jax.Array) -> jax.Array:
    return jnp.asarray(per_device, jnp.int32)[device]


def _reverse(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return tuple((to, source) for source, to in pairs)
