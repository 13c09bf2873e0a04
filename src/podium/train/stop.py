"""Ends a run early and in order: on SIGTERM or SIGINT, and before a time limit. The loop asks between dispatches
whether a stop is requested (`Stopper`), how long before a time limit it must be (`reserve_seconds`), and what all
processes have agreed on (`Vote`); it then saves and raises `Stopped`, for which the command line has an exit code of
its own. A second signal does what it would have done without Podium: it ends the process at once.
"""

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass
from types import FrameType

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podium.train.meter import DISPATCHES_AHEAD

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_TIME_LIMIT = "time limit"
_TEARDOWN_SECONDS = 2.0


class Stopper:
    """Listens for signals while its `with` lasts (in the main thread: others get none) and watches the time. `deadline`
    is a time of `clock`."""

    def __init__(self, deadline: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._deadline, self._clock = deadline, clock
        self._received: str | None = None
        self._before: dict[signal.Signals, object] = {}

    def signal(self) -> str | None:
        """The signal that was received, if one was."""
        return self._received

    def requested(self, reserve_seconds: float = 0.0) -> str | None:
        """Why the run should stop now, if it should. `reserve_seconds` is the time that ending it will take."""
        if self._received:
            return self._received
        if self._deadline is not None and self._clock() + reserve_seconds + _TEARDOWN_SECONDS >= self._deadline:
            return _TIME_LIMIT
        return None

    def __enter__(self) -> "Stopper":
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._receive) for s in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _receive(self, number: int, _: FrameType | None) -> None:
        for s in _SIGNALS:
            signal.signal(s, signal.SIG_DFL)
        self._received = signal.Signals(number).name
        with contextlib.suppress(OSError):  # not through Python's streams: one of them may be what was interrupted
            line = f"{self._received}: stopping after a checkpoint; a second signal stops at once, without one\n"
            os.write(2, line.encode())


@dataclass(frozen=True)
class Pace:
    """What a run has been seen to take."""

    dispatch_seconds: float
    write_seconds: float
    """A checkpoint's."""
    evaluation_seconds: float = 0.0
    """0 until there was one."""


def reserve_seconds(
    pace: Pace, *, done: int, evaluations: Set[int], steps_per_dispatch: int, vote_dispatches: int
) -> float:
    """How long before a time limit a stop must be requested, after step `done`. Until the run has ended, these have to:
    what was sent already, the dispatch after which the loop asks again, and those until the vote counts; an
    evaluation that comes before it does; and two checkpoints, one that is being written and the last."""
    dispatches = DISPATCHES_AHEAD + 1 + vote_dispatches
    until_it_counts = range(done, done + vote_dispatches * steps_per_dispatch + 1)
    evaluation = 0.0 if evaluations.isdisjoint(until_it_counts) else pace.evaluation_seconds
    return 2 * pace.write_seconds + dispatches * pace.dispatch_seconds + evaluation


class Vote:
    """Makes all processes stop at the same dispatch. Each puts its stop request into a small reduction that is sent
    after every dispatch and read two dispatches later, like the metrics: nobody waits for it, and all read the same.
    With one process the request is the answer."""

    _REASONS = (None, *(s.name for s in _SIGNALS), _TIME_LIMIT)

    def __init__(self, mesh: Mesh) -> None:
        self._alone = jax.process_count() == 1
        self.dispatches_ahead = 0 if self._alone else 2
        """How many dispatches lie between a request and the stop it leads to."""
        self._chips = mesh.size
        self._sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        self._most = jax.jit(lambda requests: requests.max(), out_shardings=NamedSharding(mesh, PartitionSpec()))
        self._pending: deque[jax.Array] = deque()

    def __call__(self, request: str | None) -> str | None:
        if self._alone:
            return request
        mine = np.array([self._REASONS.index(request)], np.int32)
        self._pending.append(self._most(jax.make_array_from_callback((self._chips,), self._sharding, lambda _: mine)))
        if len(self._pending) <= self.dispatches_ahead:
            return None
        return self._REASONS[int(jax.device_get(self._pending.popleft()))]
