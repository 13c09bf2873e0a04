"""Packs a gradient tree into a few flat float32 buckets and back, so that a step sums buckets and not 161 tensors:
each collective pays the latency of all its hops, each bucket only once. Buckets follow the leaves from the last to
the first, roughly the order in which the backward pass finishes them, and none waits for another's gradients.

For a sharded update every leaf is cut in as many pieces as there are chips, and a chip's shard of a bucket holds its
piece of each: so a shard is a list of slices known at compile time, and norms need no scatter. (The other way, to cut
the packed bucket, splits leaves where it falls.) Nothing here communicates."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from podium.errors import UserError


@dataclass(frozen=True)
class Buckets:
    """Which leaf of a tree goes where. `groups[b]` are the leaf numbers of bucket b, in the order in which they lie
    there."""

    treedef: Any
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sum(self.leaves[k].size for k in group) for group in self.groups)

    def pack(self, tree: Any, shards: int = 1) -> list[jax.Array]:
        """One flat float32 vector per bucket: `shards` equal parts one after the other, each with its piece of every
        leaf. A leaf that does not divide is padded with zeros."""
        pieces = [_rows(leaf, shards) for leaf in self.treedef.flatten_up_to(tree)]
        return [jnp.concatenate([pieces[k] for k in group], axis=1).reshape(-1) for group in self.groups]

    def unpack(self, flats: list[jax.Array], shards: int = 1) -> Any:
        """The tree again, each leaf in its own shape and dtype."""
        return jax.tree.map(
            lambda piece, leaf: piece.reshape(-1)[: leaf.size].reshape(leaf.shape).astype(leaf.dtype),
            self._split([flat.reshape(shards, -1) for flat in flats], shards),
            self.treedef.unflatten(self.leaves),
        )

    def unpack_shard(self, parts: list[jax.Array], shards: int) -> Any:
        """The tree of flat pieces that one of the `shards` has of every leaf, from its part of each bucket."""
        return jax.tree.map(lambda piece: piece[0], self._split([part[None] for part in parts], shards))

    def pack_shard(self, pieces: Any) -> list[jax.Array]:
        """What `unpack_shard` undoes."""
        leaves = self.treedef.flatten_up_to(pieces)
        return [jnp.concatenate([leaves[k] for k in group]) for group in self.groups]

    def _split(self, tables: list[jax.Array], shards: int) -> Any:
        leaves: list[jax.Array | None] = [None] * len(self.leaves)
        for table, group in zip(tables, self.groups, strict=True):
            edges = np.cumsum([-(-self.leaves[k].size // shards) for k in group])[:-1]
            for k, piece in zip(group, jnp.split(table, edges, axis=1), strict=True):
                leaves[k] = piece
        return self.treedef.unflatten(leaves)


def _rows(leaf: jax.Array, shards: int) -> jax.Array:
    flat = leaf.astype(jnp.float32).reshape(-1)
    return jnp.pad(flat, (0, -flat.size % shards)).reshape(shards, -1)


def plan_buckets(tree: Any, bucket_bytes: int) -> Buckets:
    """Buckets of at most `bucket_bytes` of float32, or of one leaf where that alone is larger. `tree` needs only
    shapes and dtypes."""
    if bucket_bytes < 4:
        raise UserError(f"bucket_bytes={bucket_bytes} holds no float32; use 4 or more, for example 25000000")
    leaves, treedef = jax.tree.flatten(tree)
    groups: list[list[int]] = []
    filled_bytes = 0
    for k in reversed(range(len(leaves))):
        leaf_bytes = 4 * leaves[k].size
        if not groups or filled_bytes + leaf_bytes > bucket_bytes:
            groups.append([])
            filled_bytes = 0
        groups[-1].append(k)
        filled_bytes += leaf_bytes
    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    return Buckets(treedef, shapes, tuple(map(tuple, groups)))
