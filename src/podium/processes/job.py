"""The processes of one start of `podium launch`, wherever they run: passes signals on to them, and when one has died
says which and ends the others.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from podium.errors import EXIT_HUNG

_LOOK_SECONDS = 0.05
_GRACE_SECONDS = 15.0  # for the others to notice by themselves, and to say so …
_NOTICED_SECONDS = 3.0  # … and once one has noticed, for the rest, who hear of it at the same time


class Process(Protocol):
    """What subprocess.Popen has, and who else keeps a process."""

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def kill(self) -> None: ...
    def send_signal(self, sig: int, /) -> None: ...


@dataclass(frozen=True)
class Ended:
    code: int
    """The exit code of the process that failed first; 0 if none did."""
    how: str
    """What happened to it, in words."""


class Job:
    """The processes of one start. While its `with` lasts, signals are passed on to them."""

    def __init__(
        self,
        starts: Sequence[Callable[[], Process]],
        places: Sequence[str] = (),
        *,
        grace_seconds: float = _GRACE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`places`: where each of them runs, if it matters."""
        self._starts, self._places = starts, places
        self._grace_seconds, self._clock, self._sleep = grace_seconds, clock, sleep
        self._processes: list[Process] = []
        self._passing_on = contextlib.ExitStack()
        self.was_signalled = False
        """Whether this job was told to end, so that it is not started again."""

    def __enter__(self) -> "Job":
        self._passing_on.enter_context(self._signals_passed_on())
        for start in self._starts:
            self._processes.append(start())
        return self

    def __exit__(self, *_: object) -> None:
        self._passing_on.close()

    def wait(
        self,
        stops: Callable[[], bool] = lambda: False,
        failing: Callable[[int], None] = lambda _: None,
        gone: Callable[[], Sequence[str]] = tuple,
    ) -> Ended:
        """Waits until all have ended; once `stops()`, they are told to save and end. When one has failed, `failing` is
        told its exit code, and the others have some seconds to end by themselves; when places are `gone()`, none."""
        told = False
        while (failed := self._first_failed()) is None and self._any_runs():
            if dark := gone():
                failing(EXIT_HUNG)
                self._kill()
                return Ended(EXIT_HUNG, f"{' and '.join(dark)} no longer answer{'s' * (len(dark) == 1)}")
            if not told and stops():
                told = True
                self._tell(signal.SIGTERM)
            self._sleep(_LOOK_SECONDS)
        if failed is None:
            return Ended(0, "all processes succeeded")
        failing(self._processes[failed].returncode or 0)
        deadline, noticed = self._clock() + self._grace_seconds, False
        while self._any_runs() and self._clock() < deadline:
            if not noticed and any(process.poll() == EXIT_HUNG for process in self._processes):
                noticed, deadline = True, min(deadline, self._clock() + _NOTICED_SECONDS)
            self._sleep(_LOOK_SECONDS)
        failed = self._first_failed()
        assert failed is not None
        codes = self._kill()
        code, who = codes[failed], f"process {failed} of {len(codes)}"
        who += f" on {self._places[failed]}" if self._places else ""
        if code < 0:
            return Ended(128 - code, f"{who} was ended by {signal.Signals(-code).name}")
        return Ended(code, f"{who} ended with exit code {code}")

    def _kill(self) -> list[int]:
        for process in self._processes:
            process.kill()
        return [process.wait() for process in self._processes]

    def _any_runs(self) -> bool:
        return any(process.poll() is None for process in self._processes)

    def _first_failed(self) -> int | None:
        """The one whose end explains the others': those that lose a peer end by themselves, or JAX aborts them."""
        failed = [number for number, process in enumerate(self._processes) if process.poll()]
        return min(failed, key=lambda n: self._processes[n].returncode in (EXIT_HUNG, -signal.SIGABRT), default=None)

    def _tell(self, number: int) -> None:
        for process in self._processes:
            process.send_signal(number)

    @contextlib.contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        def pass_on(number: int, _: FrameType | None) -> None:
            self.was_signalled = True
            self._tell(number)

        before = {s: signal.signal(s, pass_on) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
