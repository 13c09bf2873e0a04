"""Takes host batches to the devices ahead of time: the thread of `ahead` fills them and starts their transfers. The
consumer learns how long it was kept waiting, which is how the progress line can say whether the input or the compute
is the bottleneck.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from jax.sharding import NamedSharding

from podium.data.input.ahead import Ahead, Fills, filled
from podium.data.input.loader import HostBatch
from podium.recipe.batch import pack_images

_copiers = ThreadPoolExecutor(8, "podium-copy")  # its threads start when there is something to copy


def local_rows(sharding: NamedSharding, batch_global: int) -> np.ndarray:
    """The places of a global batch that live on this host's devices, ascending."""
    return np.unique(np.concatenate([np.arange(*part) for _, part in _parts(sharding, batch_global)]))


def to_devices(
    batch: HostBatch, sharding: NamedSharding, rows: np.ndarray, *, batch_global: int, packed: bool = False
) -> dict[str, jax.Array]:
    """Starts the transfer of this host's part of a global batch, its images packed where that is asked for. On a CPU
    nothing is copied: the arrays *are* the buffers (whatever `may_alias` says), which is why their memory is used again
    only when JAX has let go of them."""
    axis = _batch_axis(sharding)

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
        shape[axis] *= batch_global // (last - first)
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
    axis = _batch_axis(sharding)
    shape = (1,) * axis + (batch_global,)
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        assert index is not None
        first, last, _ = index[axis].indices(batch_global)
        yield device, (first, last)


def _batch_axis(sharding: NamedSharding) -> int:
    """The axis that is split, the last that the sharding names; the first where nothing is split."""
    return max(0, len(sharding.spec) - 1)


class Feed(Ahead[dict[str, jax.Array]]):
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
        rows = local_rows(sharding, batch_global)

        def on_devices(index: int) -> dict[str, jax.Array]:
            batch = filled(loader, index)
            return to_devices(batch, sharding, rows, batch_global=batch_global, packed=packed)

        super().__init__(on_devices, indices)
