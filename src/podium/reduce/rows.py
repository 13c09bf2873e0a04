"""Packs a tree of weights or gradients into buffers [rows, 8, 128] whose rows the chips share equally, for a sharded
update. A row is one tile of a TPU's memory and belongs to one tensor; the last row of a tensor is padded with zeros,
and so is a buffer, until the number of chips divides its rows. In this form, and not in a flat vector, the TPU compiler
makes a real reduce-scatter of psum_scatter. Nothing here communicates.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from podium.reduce.buckets import Buckets

_TILE = (8, 128)
ROW = _TILE[0] * _TILE[1]


@dataclass(frozen=True)
class Rows:
    """How the leaves of `buckets` lie in rows: one buffer for each bucket, each cut into `shards` equal parts."""

    buckets: Buckets
    shards: int
    tiled: bool = True
    """Whether a row is one tile of a TPU's memory; else the next values of a tensor in order, as GPUs read them."""

    def pack(self, tree: Any) -> list[jax.Array]:
        """One float32 buffer [rows, 8, 128] for each bucket."""
        leaves = self.buckets.treedef.flatten_up_to(tree)
        packed = []
        for group, rows in zip(self.buckets.groups, self._rows_of_buckets, strict=True):
            parts = [self._to_rows(leaves[k].astype(jnp.float32)) for k in group]
            missing = rows - sum(part.shape[0] for part in parts)
            packed.append(jnp.concatenate([*parts, jnp.zeros((missing, *_TILE), jnp.float32)]))
        return packed

    def unpack(self, buffers: list[jax.Array]) -> Any:
        """The tree again, each leaf in its own shape and dtype."""
        leaves: list[Any] = [None] * len(self.buckets.leaves)
        for buffer, group in zip(buffers, self.buckets.groups, strict=True):
            edges = np.cumsum([_row_count(self.buckets.leaves[k]) for k in group]).tolist()
            for k, first, last in zip(group, [0, *edges], edges, strict=False):
                leaf = self.buckets.leaves[k]
                leaves[k] = self._from_rows(buffer[first:last], leaf.shape).astype(leaf.dtype)
        return self.buckets.treedef.unflatten(leaves)

    def split(self, own: jax.Array) -> list[jax.Array]:
        """A shard's parts of each buffer, from all its rows one after the other."""
        edges = np.cumsum([rows // self.shards for rows in self._rows_of_buckets])[:-1]
        return jnp.split(own, edges)

    def leaf_of_row(self) -> np.ndarray:
        """int32 [shards, rows of a shard]: which leaf each row belongs to; −1 for rows that only fill up."""
        of_buckets = []
        for group, rows in zip(self.buckets.groups, self._rows_of_buckets, strict=True):
            table = np.full(rows, -1, np.int32)
            owners = np.repeat(group, [_row_count(self.buckets.leaves[k]) for k in group])
            table[: owners.size] = owners
            of_buckets.append(table.reshape(self.shards, -1))
        return np.concatenate(of_buckets, axis=1)

    @property
    def _rows_of_buckets(self) -> list[int]:
        counts = [sum(_row_count(self.buckets.leaves[k]) for k in group) for group in self.buckets.groups]
        return [count + -count % self.shards for count in counts]

    def _to_rows(self, leaf: jax.Array) -> jax.Array:
        if self.tiled and _is_tiled(leaf.shape):
            tiles = leaf.reshape(-1, leaf.shape[-2] // _TILE[0], _TILE[0], leaf.shape[-1] // _TILE[1], _TILE[1])
            return tiles.swapaxes(2, 3).reshape(-1, *_TILE)
        return jnp.pad(leaf.reshape(-1), (0, -leaf.size % ROW)).reshape(-1, *_TILE)

    def _from_rows(self, rows: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        if self.tiled and _is_tiled(shape):
            tiles = rows.reshape(-1, shape[-2] // _TILE[0], shape[-1] // _TILE[1], *_TILE)
            return tiles.swapaxes(2, 3).reshape(shape)
        return rows.reshape(-1)[: int(np.prod(shape))].reshape(shape)


def _row_count(leaf: Any) -> int:
    return -(-leaf.size // ROW)


def _is_tiled(shape: tuple[int, ...]) -> bool:
    """Whether the tensor lies in a TPU's memory as whole tiles: then a row is one of them, and nothing is reordered."""
    return len(shape) > 1 and shape[-2] % _TILE[0] == 0 and shape[-1] % _TILE[1] == 0 and 0 not in shape
