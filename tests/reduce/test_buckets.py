import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, PartitionSpec

from podium.errors import UserError
from podium.reduce import Reduction, TorusAxes, Xla, plan_buckets, ring

shapes = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=8)


def tree_of(shapes_: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"w{k}": rng.normal(size=shape).astype(np.float32) for k, shape in enumerate(shapes_)}


@settings(deadline=None, max_examples=30)
@given(shapes_=shapes, bucket_bytes=st.integers(4, 300))
def test_unpack_undoes_pack_and_every_element_is_in_one_bucket(
    shapes_: list[tuple[int, ...]], bucket_bytes: int
) -> None:
    tree = tree_of(shapes_)
    buckets = plan_buckets(tree, bucket_bytes)
    flats = buckets.pack(tree)
    assert [flat.size for flat in flats] == list(buckets.sizes)
    assert sum(buckets.sizes) == sum(leaf.size for leaf in tree.values())
    jax.tree.map(np.testing.assert_array_equal, buckets.unpack(flats), tree)
    for size, group in zip(buckets.sizes, buckets.groups, strict=True):
        nonempty = [k for k in group if buckets.leaves[k].size]
        assert 4 * size <= bucket_bytes or len(nonempty) == 1


def test_a_leaf_comes_back_in_its_own_dtype() -> None:
    tree = {"a": jnp.ones((2, 3), jnp.bfloat16), "b": jnp.zeros(4, jnp.float32)}
    buckets = plan_buckets(tree, 1000)
    (flat,) = buckets.pack(tree)
    assert flat.dtype == jnp.float32
    assert buckets.unpack([flat])["a"].dtype == jnp.bfloat16


def test_the_last_leaves_are_in_the_first_bucket() -> None:
    buckets = plan_buckets([np.zeros(10), np.zeros(10), np.zeros(10)], bucket_bytes=80)
    assert buckets.groups == ((2, 1), (0,))


def test_leaves_that_are_used_in_another_order_go_by_that() -> None:
    buckets = plan_buckets([np.zeros(10), np.zeros(10), np.zeros(10)], bucket_bytes=80, order=(2, 0, 1))
    assert buckets.groups == ((1, 0), (2,))


def test_buckets_too_small_for_a_number_are_refused() -> None:
    with pytest.raises(UserError, match="bucket_bytes=3 holds no float32"):
        plan_buckets([np.zeros(1)], 3)


@pytest.mark.parametrize(("bucket_bytes", "bucket_count"), [(10**6, 1), (2000, 4)])
def test_the_compiled_step_communicates_per_bucket_and_not_per_tensor(bucket_bytes: int, bucket_count: int) -> None:
    axes = TorusAxes(("row",), ("col",))
    mesh = jax.make_mesh((2, 2), ("row", "col"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:4])
    tree = {f"layer{k:02}": jax.ShapeDtypeStruct((75,), jnp.float32) for k in range(20)}
    buckets = plan_buckets(tree, bucket_bytes)

    def collectives(reduction: Reduction, name: str) -> int:
        def step(blocks):
            gradients = jax.tree.map(lambda block: block[0], blocks)
            return buckets.unpack([reduction.all_reduce(flat) for flat in buckets.pack(gradients)])

        run = jax.shard_map(step, mesh=mesh, in_specs=PartitionSpec(axes.all), out_specs=PartitionSpec())
        blocks = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((4, *leaf.shape), leaf.dtype), tree)
        return (jax.jit(run).lower(blocks).compile().as_text() or "").count(f" {name}(")

    ticks = 2 * (4 - 1)
    assert collectives(ring(axes), "collective-permute") == bucket_count * ticks
    # XLA's own combiner may join small ones further.
    assert 1 <= collectives(Xla(axes), "all-reduce") <= bucket_count
