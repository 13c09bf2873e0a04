"""Rows against the tree that they are made of: nothing lost, every row of one tensor, equal shards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podium.reduce import Rows, plan_buckets

# Whole tiles in two orders of axes, a tensor that is no whole tile, one of several rows and a rest, one element, none.
TREE = {
    name: np.random.default_rng(k).normal(size=shape).astype(np.float32)
    for k, (name, shape) in enumerate(
        {
            "tiles": (2, 16, 256),
            "bias": (5,),
            "long": (3, 500),
            "one": (),
            "none": (0, 8, 128),
            "tile": (8, 128),
        }.items()
    )
}


@pytest.mark.parametrize("bucket_bytes", [10**9, 5000])
@pytest.mark.parametrize("shards", [1, 3, 8])
def test_unpack_undoes_pack_and_every_row_is_of_the_leaf_that_the_table_names(bucket_bytes, shards):
    buckets = plan_buckets(TREE, bucket_bytes)
    rows = Rows(buckets, shards)
    buffers = rows.pack(TREE)
    assert len(buffers) == len(buckets.groups)
    assert all(buffer.shape[1:] == (8, 128) and buffer.shape[0] % shards == 0 for buffer in buffers)
    jax.tree.map(np.testing.assert_array_equal, rows.unpack(buffers), TREE)
    owners = rows.leaf_of_row()
    for shard in range(shards):
        parts = [buffer.reshape(shards, -1, 8, 128)[shard] for buffer in buffers]
        own = jnp.concatenate(parts)
        for part, again in zip(parts, rows.split(own), strict=True):
            np.testing.assert_array_equal(part, again)
        assert owners[shard].shape == (own.shape[0],)
    # What the table says of all shards: the same numbers as the leaf has, and zeros in rows of no leaf.
    cut = jnp.concatenate([buffer.reshape(shards, -1, 8, 128) for buffer in buffers], axis=1)
    for k, leaf in enumerate(jax.tree.leaves(TREE)):
        inside = np.asarray(cut)[owners == k]
        assert inside.shape[0] == -(-leaf.size // 1024)
        np.testing.assert_array_equal(np.sort(inside[inside != 0]), np.sort(leaf.reshape(-1)))
    assert not np.any(np.asarray(cut)[owners == -1])


def test_a_row_of_a_tensor_of_whole_tiles_is_one_of_them():
    """So that on a TPU, where such a tensor lies tile by tile, packing moves memory and reorders nothing."""
    (buffer,) = Rows(plan_buckets({"w": TREE["tiles"]}, 10**9), 1).pack({"w": TREE["tiles"]})
    np.testing.assert_array_equal(buffer[5], TREE["tiles"][1, 0:8, 128:256])


def test_leaves_come_back_in_their_own_dtype():
    tree = {"a": jnp.ones((2, 3), jnp.bfloat16)}
    rows = Rows(plan_buckets(tree, 1000), 2)
    assert rows.pack(tree)[0].dtype == jnp.float32
    assert rows.unpack(rows.pack(tree))["a"].dtype == jnp.bfloat16
