"""Packs a gradient tree into a few flat float32 buckets and back, so that a step sums buckets and not 161 tensors:
each collective pays the latency of all its hops, each bucket only once. Buckets follow the leaves from the last to
the first, roughly the order in which the backward pass finishes them, and none waits for another's gradients.
`rows` lays the same buckets out for a sharded update. Nothing here communicates."""

from collections.abc import Sequence
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

    def pack(self, tree: Any) -> list[jax.Array]:
        """One flat float32 vector per bucket."""
        flats = [leaf.astype(jnp.float32).reshape(-1) for leaf in self.treedef.flatten_up_to(tree)]
        return [jnp.concatenate([flats[k] for k in group]) for group in self.groups]

    def unpack(self, flats: list[jax.Array]) -> Any:
        """The tree again, each leaf in its own shape and dtype."""
        leaves: list[Any] = [None] * len(self.leaves)
        for flat, group in zip(flats, self.groups, strict=True):
            edges = np.cumsum([self.leaves[k].size for k in group])[:-1]
            for k, part in zip(group, jnp.split(flat, edges), strict=True):
                leaves[k] = part.reshape(self.leaves[k].shape).astype(self.leaves[k].dtype)
        return self.treedef.unflatten(leaves)


def plan_buckets(tree: Any, bucket_bytes: int, order: Sequence[int] | None = None) -> Buckets:
    """Buckets of at most `bucket_bytes` of float32, or of one leaf where that alone is larger. `tree` needs only
    shapes and dtypes; `order` has the numbers of its leaves where they are not used in the order of the tree."""
    if bucket_bytes < 4:
        raise UserError(f"bucket_bytes={bucket_bytes} holds no float32; use 4 or more, for example 25000000")
    leaves, treedef = jax.tree.flatten(tree)
    groups: list[list[int]] = []
    filled_bytes = 0
    for k in reversed(order or range(len(leaves))):
        leaf_bytes = 4 * leaves[k].size
        if not groups or filled_bytes + leaf_bytes > bucket_bytes:
            groups.append([])
            filled_bytes = 0
        groups[-1].append(k)
        filled_bytes += leaf_bytes
    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    return Buckets(treedef, shapes, tuple(map(tuple, groups)))
