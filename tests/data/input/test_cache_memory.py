"""Batch memory is used again, but never while anybody still sees it; free memory is what a container's limit leaves."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest

from podium.data.dataset.shards import ImageSet
from podium.data.input import cache
from podium.data.input.buffers import BatchMemory
from podium.data.input.loader import TrainLoader
from podium.data.input.prefetch import Feed
from podium.host import memory
from podium.host.memory import free_memory_bytes
from podium.mesh import batch_sharding, build_mesh
from podium.recipe.reading import from_dict
from podium.recipe.torus import Shape, lay_out


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
    r = from_dict({
        "epochs": 2, "batch_global": 16, "data": {"image_size": 24, "threads": 2, "cache": "pixels"},
        "model": {"norm_span": 2, "name": "resnet8", "stem": "conv3"},
        "optimizer": {"name": "sgd", "learning_rate": 0.1}, "schedule": {"decay": "cosine", "warmup_epochs": 0},
    })  # fmt: skip
    images, steps = ImageSet.open(small_data, "train"), 40
    mesh = build_mesh(lay_out(Shape(2, 4), 16, 2), jax.devices()[:8])
    sharding = batch_sharding(mesh, leading=1)

    @jax.jit
    def slow_sum(image):
        busy = jax.lax.fori_loop(0, 20, lambda _, x: jnp.sin(x @ x.T) @ x, image[0].reshape(16, -1) / 255.0)
        return image.astype(jnp.int32).sum((0, 2, 3, 4)) + (busy.sum() > 1e30)

    loader = TrainLoader(images, r, np.arange(16))
    with Feed(loader, range(steps), sharding, batch_global=16) as feed:
        sums = [slow_sum(batch["image"]) for batch in feed]
    for step, got in enumerate(sums):
        fresh: dict[str, np.ndarray] = {
            "image": np.empty((1, 16, 24, 24, 3), np.uint8),
            "label": np.empty((1, 16), np.int32),
        }
        loader.fill(fresh, step)
        np.testing.assert_array_equal(got, fresh["image"].sum((0, 2, 3, 4), dtype=np.int32))
    held = sum(map(len, loader._memory._free.values()))
    assert held < 2 * steps  # some memory was in fact used again, or this test shows nothing


GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A made /proc and /sys of a machine with 64 GiB free: the process's cgroups, and the files of some of them."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=64 * GIB))

    def make(membership, groups):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(membership)
        for group, files in groups.items():
            (tmp_path / "sys/fs/cgroup" / group).mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (tmp_path / "sys/fs/cgroup" / group / name).write_text(f"{text}\n")
        return tmp_path

    return make


def v2(limit, used, inactive_file):
    stat = f"anon 7\ninactive_file {inactive_file}\nactive_file 9"
    return {"memory.max": limit, "memory.current": used, "memory.stat": stat}


def v1(limit, used, inactive_file):
    stat = f"inactive_file 1\ntotal_inactive_file {inactive_file}"
    return {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": used, "memory.stat": stat}


NO_LIMIT_V1 = 2**63 - 4096


@pytest.mark.parametrize(
    ("membership", "groups", "free_gib"),
    [
        ("0::/job\n", {"job": v2(8 * GIB, 3 * GIB, 2 * GIB)}, 7),  # files' pages are given back
        ("0::/a/job\n", {"a/job": v2("max", GIB, 0), "a": v2(16 * GIB, 6 * GIB, 0)}, 10),  # a limit above binds too
        ("0::/a/job\n", {"a/job": v2(4 * GIB, GIB, 0), "a": v2(16 * GIB, 6 * GIB, 0)}, 3),
        ("0::/job\n", {"job": v2(GIB, 2 * GIB, 0)}, 0),
        ("0::/job\n", {"job": v2("max", GIB, 0)}, 64),
        ("0::/job\n", {"job": v2(512 * GIB, GIB, 0)}, 64),  # more than the machine has
        ("0::/host/says/so\n", {".": v2(8 * GIB, 3 * GIB, 0)}, 5),  # a container sees its own group alone
        ("0::/\n", {".": {"cgroup.procs": "1"}}, 64),  # the machine's own group has no limit
        ("5:cpu:/job\n4:memory:/job\n0::/\n", {"memory/job": v1(8 * GIB, 3 * GIB, GIB)}, 6),
        ("4:memory:/docker/1\n", {"memory": v1(8 * GIB, 3 * GIB, GIB)}, 6),
        ("4:memory:/job\n", {"memory/job": v1(NO_LIMIT_V1, GIB, 0), "memory": v1(NO_LIMIT_V1, GIB, 0)}, 64),
        ("5:cpu:/job\n", {"memory/job": v1(GIB, 0, 0)}, 64),  # another process's
    ],
)
def test_free_memory_is_the_least_of_the_machines_and_what_every_limit_leaves(machine, membership, groups, free_gib):
    assert free_memory_bytes(machine(membership, groups)) == free_gib * GIB


def test_without_cgroups_free_memory_is_the_machines(tmp_path):
    assert free_memory_bytes(tmp_path) > 0
    assert list(memory._left_by_limits(tmp_path)) == []


def test_half_of_the_free_memory_is_for_the_cache(monkeypatch):
    monkeypatch.setattr(cache, "free_memory_bytes", lambda: 8 * GIB)
    assert cache.budget_bytes(0.0) == 4 * GIB
    assert cache.budget_bytes(1.5) == 1_500_000_000  # as the recipe says


def test_the_processes_of_a_host_divide_its_budget_and_training_gets_three_quarters():
    assert cache.divide_budget(1.6, processes_here=1) == cache.CacheBudgets(1_200_000_000, 400_000_000)
    assert cache.divide_budget(1.6, processes_here=4) == cache.CacheBudgets(300_000_000, 100_000_000)
