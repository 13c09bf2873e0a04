"""Batch memory is used again, but never while anybody can still see it."""

import jax
import jax.numpy as jnp
import numpy as np

from podium import recipe, topology
from podium.data.feed import Feed
from podium.data.loader import TrainLoader
from podium.data.memory import BatchMemory
from podium.data.shards import ImageSet


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_when_the_last_view_is_gone():
    memory = BatchMemory()
    first = memory.empty((4, 8), np.int32)
    place, row = address(first), first[2]
    del first
    second = memory.empty((4, 8), np.int32)
    assert address(second) != place  # a row of the first is still in sight
    del row
    assert address(memory.empty((4, 8), np.int32)) == place
    assert address(memory.empty((16, 2), np.int32)) == place  # the size counts, not the shape


def test_a_device_array_keeps_the_memory_that_it_shares():
    memory = BatchMemory()
    kept = []
    for i in range(8):
        host = memory.empty((1024,), np.int32)
        assert address(host) % 64 == 0
        host[:] = i
        kept.append(jax.device_put(host, jax.devices()[0]))
        del host
    assert [np.unique(array).tolist() for array in kept] == [[i] for i in range(8)]


def test_arrays_are_writable_and_typed():
    array = BatchMemory().empty((3, 5, 2), np.float32)
    array[:] = 1.5
    assert array.dtype == np.float32
    assert array.sum() == 45


def test_what_a_device_still_computes_with_is_not_overwritten(small_data):
    """Batches are let go while the computation that uses them is on its way; eight chips hold slices of each."""
    r = recipe.from_dict({
        "epochs": 2, "batch_global": 16, "data": {"image_size": 24, "threads": 2, "cache": "pixels"},
        "model": {"norm_span": 2, "name": "resnet8", "stem": "conv3"},
        "optimizer": {"name": "sgd", "learning_rate": 0.1}, "schedule": {"decay": "cosine", "warmup_epochs": 0},
    })  # fmt: skip
    images, steps = ImageSet.open(small_data, "train"), 40
    mesh = topology.lay_out(topology.Shape(2, 4), 16, 2).mesh(jax.devices()[:8])
    sharding = topology.batch_sharding(mesh, leading=1)

    @jax.jit
    def slow_sum(image):
        busy = jax.lax.fori_loop(0, 20, lambda _, x: jnp.sin(x @ x.T) @ x, image[0].reshape(16, -1) / 255.0)
        return image.astype(jnp.int32).sum((0, 2, 3, 4)) + (busy.sum() > 1e30)

    loader = TrainLoader(images, r, np.arange(16))
    with Feed(loader, range(steps), sharding, 16) as feed:
        sums = [slow_sum(batch["image"]) for batch in feed]
    for step, got in enumerate(sums):
        fresh = {"image": np.empty((1, 16, 24, 24, 3), np.uint8), "label": np.empty((1, 16), np.int32)}
        loader.fill(fresh, step)
        np.testing.assert_array_equal(got, fresh["image"].sum((0, 2, 3, 4), dtype=np.int32))
    held = sum(map(len, loader._memory._free.values()))
    assert held < 2 * steps  # some memory was in fact used again, or this test shows nothing
