"""Makes what is asked for ahead of time, in a thread of its own: two batches are ready, or on their way, while one is
used. What a batch is made of is the caller's; nothing here needs JAX.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, Self, TypeVar

from podium.data.input.loader import HostBatch

_IN_FLIGHT = 2

Batch = TypeVar("Batch")


class Fills(Protocol):
    def new_batch(self, index: int) -> HostBatch: ...
    def fill(self, batch: HostBatch, index: int) -> None: ...


def filled(loader: Fills, index: int) -> HostBatch:
    batch = loader.new_batch(index)
    loader.fill(batch, index)
    return batch


class Ahead(Iterator[Batch], Generic[Batch]):
    """`make(index)` for each index of `indices`, in order. Use it in a `with`, so that its thread ends."""

    def __init__(self, make: Callable[[int], Batch], indices: Iterable[int]) -> None:
        self._make, self._indices = make, indices
        self._queue: queue.Queue[Batch | BaseException | None] = queue.Queue(_IN_FLIGHT)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="podium-feed", daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        """Whether the next batch is there already."""
        return not self._queue.empty()

    def __next__(self) -> Batch:
        item = self._queue.get()
        if item is None or isinstance(item, BaseException):
            self._queue.put(item)  # so that asking again gives the same answer
            raise StopIteration if item is None else item
        return item

    def __enter__(self) -> Self:
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
                self._put(self._make(index))
                if self._stopped.is_set():
                    return
            self._put(None)
        except BaseException as error:  # reaches the consumer at its next request
            self._put(error)

    def _put(self, item: Batch | BaseException | None) -> None:
        while not self._stopped.is_set():
            try:
                return self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
