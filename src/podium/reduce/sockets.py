"""Sums between processes over sockets of their own (`links`), along the same tables that `routed` runs. A thread
carries them: several sums are started as their buffers become ready and are waited for at the end, so that the backward
pass goes on meanwhile. Scatters and gathers are halves of the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from podium.reduce import links
from podium.reduce.collectives import TorusAxes, padded, varying
from podium.reduce.declare_replicated import declare_replicated
from podium.reduce.loads import pieces_of
from podium.reduce.routes import Routes

Choice = Callable[[int, int, int], Routes]
"""(rows, cols, bytes of a share) -> the routes for it."""


def sockets(axes: TorusAxes, wire: jax.typing.DTypeLike = jnp.float32) -> "Sockets":
    """Each sum along the schedule that fits its size, the torus and what its links were measured to cost."""
    return Sockets(axes, wire=wire)


@dataclass(frozen=True)
class Sockets:
    """A `Reduction` over sockets. Scatters and gathers go along the routes of their size, too."""

    axes: TorusAxes
    choice: Choice = links.chosen_routes
    wire: jax.typing.DTypeLike = jnp.float32
    pieces: Callable[..., int] = pieces_of

    def all_reduce(self, flat: jax.Array) -> jax.Array:
        return self.all_reduce_each([flat])[0]

    def all_reduce_each(self, flats: Sequence[jax.Array]) -> list[jax.Array]:
        """The sums of several buffers, all of them started before the first is waited for."""
        totals = self._each(links.SUM, [self._lane_share(flat) for flat in flats])
        return [
            declare_replicated(self._gather_lanes(total)[: flat.size], self.axes.all)
            for total, flat in zip(totals, flats, strict=True)
        ]

    def sum_over_hosts(self, share: jax.Array) -> jax.Array:
        rows, cols, _ = self.axes.sizes()
        (total,) = self._each(links.SUM, [padded(varying(share, self.axes), rows * cols)])
        return declare_replicated(total[: share.size], self.axes.hosts)

    def reduce_scatter(self, buffer: jax.Array) -> jax.Array:
        return self.reduce_scatter_each([buffer])[0]

    def reduce_scatter_each(self, buffers: Sequence[jax.Array]) -> list[jax.Array]:
        owned = self._each(links.SCATTER, [self._lane_share(buffer.reshape(-1)) for buffer in buffers])
        return [own.reshape(-1, *buffer.shape[1:]) for own, buffer in zip(owned, buffers, strict=True)]

    def all_gather(self, shard: jax.Array, size: int) -> jax.Array:
        (hosts,) = self._each(links.GATHER, [varying(shard.reshape(-1), self.axes)])
        whole = self._gather_lanes(hosts).reshape(-1, *shard.shape[1:])
        return declare_replicated(whole[:size], self.axes.all)

    def _each(self, mode: int, given: Sequence[jax.Array]) -> list[jax.Array]:
        rows, cols, _ = shape = self.axes.sizes()
        nodes, device = rows * cols, lax.axis_index(self.axes.all)
        calls: list[links.Call] = []
        tokens = []
        for part in given:
            columns = part.size if mode == links.GATHER else part.size // nodes
            size_bytes = 4 * columns * nodes
            routes = self.choice(rows, cols, size_bytes)
            bf16 = mode != links.GATHER and jnp.dtype(self.wire) == jnp.bfloat16
            pieces = self.pieces(routes, rows, cols, size_bytes=size_bytes)
            calls.append(links.new_call(routes, shape, mode=mode, bf16=bf16, columns=columns, pieces=pieces))
            tokens.append(links.start(calls[-1], part.astype(jnp.float32), device))
        found: list[jax.Array] = []
        for call in calls:  # one after the other
            found.append(links.done(call, device, *tokens, *found[-1:]))
        return [total.astype(part.dtype) for total, part in zip(found, given, strict=True)]

    def _lane_share(self, flat: jax.Array) -> jax.Array:
        flat = padded(varying(flat, self.axes), self.axes.devices)
        return lax.psum_scatter(flat, self.axes.lane, tiled=True) if self._has_lanes else flat

    def _gather_lanes(self, share: jax.Array) -> jax.Array:
        return lax.all_gather(share, self.axes.lane, tiled=True) if self._has_lanes else share

    @property
    def _has_lanes(self) -> bool:
        return bool(self.axes.lane) and lax.axis_size(self.axes.lane) > 1
