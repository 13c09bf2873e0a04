"""What one process sees of itself and its host, for `podium doctor`: plain facts that travel as JSON. `Host` is seen
before any device starts, `Work` with the devices at work on small pieces of the run. Nothing here is judged (`judge`
does that), and nothing raises: what cannot be had is reported as a problem.
"""

import contextlib
import dataclasses
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podium.data import decode
from podium.data.dataset.shards import ImageSet
from podium.data.input.cache import cached_bytes, choose_level, divide_budget
from podium.data.input.loader import TrainLoader, thread_count
from podium.data.input.prefetch import local_rows
from podium.doctor import links
from podium.errors import UserError
from podium.host import gpus
from podium.host.accelerators import accelerator_files
from podium.host.memory import free_memory_bytes
from podium.host.versions import versions
from podium.mesh import AXES, batch_sharding, is_gpu, natural_shape
from podium.processes import agree
from podium.processes.join import runtime
from podium.recipe.reading import to_dict
from podium.recipe.schema import Recipe
from podium.reduce.choose import seconds_of
from podium.step.programs import build_step

ALL_REDUCE_BYTES = 4 << 20
_DECODE_SECONDS = 0.5
_MATRIX = 768
_ALL = slice(None)


@dataclass(frozen=True)
class Host:
    """Seen before any device is started."""

    host: str
    versions: dict[str, str]
    recipe: str
    """A digest."""
    data: str
    """The content hash, or empty."""
    data_problem: str
    decoder: str
    decoder_is_native: bool
    coordinator: str
    """HOST:PORT, or empty where there is no other process."""
    coordinator_address: str
    """What the coordinator's name means on this host; empty if nothing."""
    own_address: str
    """The same of the host's own name, on which CPU collectives listen."""
    memory_free_bytes: int
    disk_free_bytes: int
    accelerator_files: list[str]
    """Device files that show that there is an accelerator, whatever JAX sees."""
    gpu_driver: str = ""
    gpu_memory_used_bytes: list[int] = dataclasses.field(default_factory=list)
    """Memory of each GPU that other programs use before the run does."""
    fabric: list[str] = dataclasses.field(default_factory=list)
    """Adapters by which NCCL reaches other hosts; without one it goes over TCP."""


@dataclass(frozen=True)
class Work:
    """Seen with devices."""

    platform: str
    devices: int
    compute_seconds: float
    """For a small matrix product on one of this process's devices, alone."""
    all_reduce_seconds: float
    """For a small sum over the whole torus."""
    all_reduce_is_right: bool
    checkpoint_bytes: int
    images: int
    """This process's share of the training images; 0 without data."""
    cache: str
    cache_bytes: int
    """What that level needs for the share."""
    decode_threads: int
    decode_images_per_second: float
    decode_problem: str
    large_sum_seconds: float = 0.0
    """For a sum over all GPUs that is large enough for their links to decide; 0 elsewhere."""
    expected_sum_seconds: float = 0.0
    """By what the links are sold as; 0 where nobody knows."""


def observe_host(recipe: Recipe, data: Path | None, run: Path) -> Host:
    coordinator = runtime().coordinator_address or ""
    content_hash, problem = "", ""
    if data:
        try:
            content_hash = ImageSet.open(data, "train").content_hash
            ImageSet.open(data, "validation")
        except UserError as error:
            problem = str(error)
    return Host(
        host=socket.gethostname(),
        versions=versions() | ({"NVIDIA driver": driver} if (driver := gpus.driver_version()) else {}),
        recipe=agree.digest(to_dict(recipe)),
        data=content_hash,
        data_problem=problem,
        decoder=decode.backend_reason(),
        decoder_is_native=decode.backend() == "native",
        coordinator=coordinator,
        coordinator_address=_address(coordinator.rpartition(":")[0]) if coordinator else "",
        own_address=_address(socket.gethostname()),
        memory_free_bytes=free_memory_bytes(),
        disk_free_bytes=shutil.disk_usage(existing_folder(run)).free,
        accelerator_files=accelerator_files(),
        gpu_driver=driver,
        gpu_memory_used_bytes=gpus.memory_used_bytes(),
        fabric=gpus.fabric(),
    )


def existing_folder(path: Path) -> Path:
    """The nearest folder above `path`, or itself, that is there."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())


def observe_work(recipe: Recipe, mesh: Mesh, data: Path | None, *, processes_here: int) -> Work:
    """What this process sees with its devices. All processes must call this together; `processes_here` of them share
    this host's memory."""
    state = jax.eval_shape(build_step(recipe, mesh).init)
    all_reduce, given = jax.jit(_all_reduce(mesh)), _addends(mesh, ALL_REDUCE_BYTES // 4)
    sums = [np.asarray(shard.data) for shard in all_reduce(given).addressable_shards]
    work = Work(
        platform=mesh.devices.flat[0].platform,
        devices=len(mesh.local_devices),
        compute_seconds=_compute_seconds(),
        all_reduce_seconds=float(np.median(seconds_of([all_reduce], given, repeats=5))),
        all_reduce_is_right=all(is_sum(total, mesh.size) for total in sums),
        checkpoint_bytes=sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state)),
        images=0,
        cache="",
        cache_bytes=0,
        decode_threads=thread_count(recipe.data),
        decode_images_per_second=0.0,
        decode_problem="",
        **(_large_sum(mesh) if is_gpu(mesh) and mesh.size > 1 else {}),
    )
    return dataclasses.replace(work, **_input(recipe, mesh, data, processes_here=processes_here)) if data else work


def _large_sum(mesh: Mesh) -> dict[str, float]:
    devices = list(mesh.devices.flat)
    hosts = natural_shape(devices).cols
    all_reduce, given = jax.jit(_all_reduce(mesh)), _addends(mesh, links.SUM_BYTES // 4)
    expected = links.expected_seconds(devices[0].device_kind, hosts=hosts, gpus_per_host=len(devices) // hosts)
    seconds = float(np.median(seconds_of([all_reduce], given, repeats=5)))
    return {"large_sum_seconds": seconds, "expected_sum_seconds": expected}


def _input(recipe: Recipe, mesh: Mesh, data: Path, *, processes_here: int) -> dict[str, Any]:
    images = ImageSet.open(data, "train")
    rows = local_rows(batch_sharding(mesh, leading=1), recipe.batch_global)
    uncached = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, cache="none"))
    loader = TrainLoader(images, uncached, rows)
    share = loader.order.share(rows)
    budgets = divide_budget(recipe.data.cache_gb, processes_here)
    level = choose_level(images, share, recipe.data.cache, budget_bytes=budgets.train_bytes)
    rate, problem = _decode_rate(loader)
    return {
        "images": len(share),
        "cache": level,
        "cache_bytes": cached_bytes(images, share, level),
        "decode_images_per_second": rate,
        "decode_problem": problem,
    }


def _decode_rate(loader: TrainLoader) -> tuple[float, str]:
    """Images a second from the first batches, with all processes of the host at it at once, as in training."""
    batch, step = loader.new_batch(), 0
    with contextlib.closing(loader.cache):
        try:
            loader.fill(batch, 0)  # reads the files' first pages and starts the threads
            began = time.perf_counter()
            while (seconds := time.perf_counter() - began) < _DECODE_SECONDS:
                step += len(batch["label"])
                loader.fill(batch, step)
        except UserError as error:
            return 0.0, str(error)
    return step * len(loader.rows) / seconds, ""


def _compute_seconds() -> float:
    matrix = jax.device_put(np.ones((_MATRIX, _MATRIX), np.float32), jax.local_devices()[0])
    product = jax.jit(lambda a: a @ a)
    product(matrix).block_until_ready()

    def once() -> float:
        began = time.perf_counter()
        product(matrix).block_until_ready()
        return time.perf_counter() - began

    return min(once() for _ in range(7))  # what the device can do, not what else its host was busy with


def _all_reduce(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    spec = PartitionSpec(AXES)
    return jax.shard_map(lambda x: lax.psum(x[0], AXES), mesh=mesh, in_specs=spec, out_specs=PartitionSpec())


def _addends(mesh: Mesh, size: int) -> jax.Array:
    def of_chip(index: Any) -> np.ndarray:
        return addends(mesh.size, size, index[0])

    return jax.make_array_from_callback((mesh.size, size), NamedSharding(mesh, PartitionSpec(AXES)), of_chip)


def addends(chips: int, size: int, which: slice = _ALL) -> np.ndarray:
    """float32 [chips, size]: what `which` of the chips add to the sum. Neighbours add different vectors, and neighbours
    in a vector differ, so a sum that counts one chip twice, or puts a part in the wrong place, is noticed."""
    return _weights(chips)[which, None] * _pattern(size)


def is_sum(total: np.ndarray, chips: int) -> bool:
    """Whether `total` is the sum of all addends: whole numbers below 2^24, so that it is exact in any order."""
    return bool(np.array_equal(total, _weights(chips).sum() * _pattern(total.size)))


def _weights(chips: int) -> np.ndarray:
    return np.arange(chips, dtype=np.float32) % 64 + 1


def _pattern(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32) % 7 - 3


def _address(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name.strip("[]"), None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return ""
