"""Ends a run early and in order: on SIGTERM or SIGINT, and before a time limit. The loop asks between dispatches
whether it should stop; it then saves and raises `Stopped`, for which the command line has an exit code of its own. A
second signal does what it would have done without Podium: it ends the process at once.
"""

import contextlib
import os
import signal
import threading
import time
from collections import deque
from types import FrameType

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_TIME_LIMIT = "time limit"
_TEARDOWN_SECONDS = 2.0


class Interrupt:
    """Listens for signals while its `with` lasts (in the main thread: others get none) and watches the time."""

    def __init__(self, max_minutes: float | None = None) -> None:
        self._deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self._received: str | None = None
        self._before: dict[signal.Signals, object] = {}

    def signal(self) -> str | None:
        """The signal that was received, if one was."""
        return self._received

    def wanted(self, reserve_seconds: float = 0.0) -> str | None:
        """Why the run should stop now, if it should. `reserve_seconds`: what ending it will take."""
        if self._received:
            return self._received
        if self._deadline and time.monotonic() + reserve_seconds + _TEARDOWN_SECONDS >= self._deadline:
            return _TIME_LIMIT
        return None

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._hear) for s in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _hear(self, number: int, _: FrameType | None) -> None:
        for s in _SIGNALS:
            signal.signal(s, signal.SIG_DFL)
        self._received = signal.Signals(number).name
        with contextlib.suppress(OSError):  # not through Python's streams: one of them may be what was interrupted
            os.write(2, f"{self._received}: saving after this dispatch; once more ends it at once\n".encode())


class Vote:
    """Makes all processes stop at the same dispatch. Each gives its wish to a small reduction that is sent after every
    dispatch and read two dispatches later, like the metrics: nobody waits for it, and all read the same. With one
    process the wish is the answer."""

    _REASONS = (None, *(s.name for s in _SIGNALS), _TIME_LIMIT)

    def __init__(self, mesh: Mesh) -> None:
        self._alone = jax.process_count() == 1
        self.dispatches_ahead = 0 if self._alone else 2
        """How many dispatches a wish is older than the stop it leads to."""
        self._chips = mesh.size
        self._sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        self._most = jax.jit(lambda wishes: wishes.max(), out_shardings=NamedSharding(mesh, PartitionSpec()))
        self._pending: deque[jax.Array] = deque()

    def __call__(self, wish: str | None) -> str | None:
        if self._alone:
            return wish
        mine = np.array([self._REASONS.index(wish)], np.int32)
        self._pending.append(self._most(jax.make_array_from_callback((self._chips,), self._sharding, lambda _: mine)))
        if len(self._pending) <= self.dispatches_ahead:
            return None
        return self._REASONS[int(jax.device_get(self._pending.popleft()))]
