"""Takes host batches to the devices ahead of time. One thread fills batches and starts their transfers; two batches are
in flight while the devices compute. The consumer learns how long it was kept waiting, which is how the progress
line can say whether the input or the compute is the bottleneck.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import jax
import numpy as np
from jax.sharding import NamedSharding

from podium.data.input.loader import HostBatch
from podium.recipe.batch import pack_images

_IN_FLIGHT = 2
_copiers = ThreadPoolExecutor(8, "podium-copy")  # its threads start when there is something to copy


class Fills(Protocol):
    def new_batch(self) -> HostBatch: ...
    def fill(self, batch: HostBatch, index: int) -> None: ...


def local_rows(sharding: NamedSharding, batch_global: int) -> np.ndarray:
    """The places of a global batch that live on this host's devices, ascending."""
    return np.unique(np.concatenate([np.arange(*part) for _, part in _parts(sharding, batch_global)]))


def to_devices(
    batch: HostBatch, sharding: NamedSharding, rows: np.ndarray, *, batch_global: int, packed: bool = False
) -> dict[str, jax.Array]:
    """Starts the transfer of this host's part of a global batch, its images packed where that is asked for. On a CPU
    nothing is copied: the arrays *are* the buffers (whatever `may_alias` says), which is why their memory is used again
    only when JAX has let go of them."""
    axis = len(sharding.spec) - 1

    def one(name: str, host: np.ndarray) -> jax.Array:
        parts = []
        for device, (first, last) in _parts(sharding, batch_global):
            here = slice(*np.searchsorted(rows, [first, last]))
            parts.append((device, host[(slice(None),) * axis + (here,)]))
        if parts[0][0].platform == "cpu":
            lay_out: Callable[[np.ndarray], np.ndarray] = np.asarray
        else:
            lay_out = np.ascontiguousarray
        on_devices = placed(parts, pack_images if packed and name == "image" else lay_out)
        shape = list(on_devices[0].shape)
        shape[axis] *= sharding.num_devices
        return jax.make_array_from_single_device_arrays(tuple(shape), sharding, on_devices)

    return {name: one(name, host) for name, host in batch.items()}


def placed(
    parts: Sequence[tuple[jax.Device, np.ndarray]], lay_out: Callable[[np.ndarray], np.ndarray]
) -> list[jax.Array]:
    """Each part on its device, laid out as its transfer wants it. The parts of a dispatch of several steps do not lie
    together in memory, and at some GB a dispatch for eight GPUs one thread could not bring them together in time."""

    def place(part: tuple[jax.Device, np.ndarray]) -> jax.Array:
        device, view = part
        return jax.device_put(lay_out(view), device)

    if lay_out is np.asarray or len(parts) == 1:
        return [place(part) for part in parts]
    return list(_copiers.map(place, parts))


def _parts(sharding: NamedSharding, batch_global: int) -> Iterator[tuple[jax.Device, tuple[int, int]]]:
    """Each device of this host with the [first, last) places of the batch that it holds."""
    axis = len(sharding.spec) - 1
    shape = (1,) * axis + (batch_global,)
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        assert index is not None
        first, last, _ = index[axis].indices(batch_global)
        yield device, (first, last)


class Feed(Iterator[dict[str, jax.Array]]):
    """Device batches for each index of `indices`, in order. Use it in a `with`, so that its thread ends."""

    def __init__(
        self,
        loader: Fills,
        indices: Iterable[int],
        sharding: NamedSharding,
        *,
        batch_global: int,
        packed: bool = False,
    ) -> None:
        self._loader, self._indices, self._packed = loader, indices, packed
        self._sharding, self._batch_global = sharding, batch_global
        self._rows = local_rows(sharding, batch_global)
        self._queue: queue.Queue[dict[str, jax.Array] | BaseException | None] = queue.Queue(_IN_FLIGHT)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="podium-feed", daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        """Whether the next batch is there already."""
        return not self._queue.empty()

    def __next__(self) -> dict[str, jax.Array]:
        item = self._queue.get()
        if item is None or isinstance(item, BaseException):
            self._queue.put(item)  # so that asking again gives the same answer
            raise StopIteration if item is None else item
        return item

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):  # makes room for a thread that waits to put its last batch
                self._queue.get_nowait()
            self._thread.join(timeout=0.05)  # returns as soon as it has ended

    def _run(self) -> None:
        try:
            for index in self._indices:
                batch = self._loader.new_batch()
                self._loader.fill(batch, index)
                self._put(self._on_devices(batch))
                if self._stopped.is_set():
                    return
            self._put(None)
        except BaseException as error:  # reaches the consumer at its next request
            self._put(error)

    def _on_devices(self, batch: HostBatch) -> dict[str, jax.Array]:
        return to_devices(batch, self._sharding, self._rows, batch_global=self._batch_global, packed=self._packed)

    def _put(self, item: dict[str, jax.Array] | BaseException | None) -> None:
        while not self._stopped.is_set():
            try:
                return self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
