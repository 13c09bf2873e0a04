"""Several processes of one run on this machine: `podium launch -n 4 -- train …` starts them, passes signals on, ends
all when one has died, says which, and starts them again from the last checkpoint as often as it was told to. On a
cluster this is the work of Slurm, MPI or Kubernetes.
"""

import contextlib
import ctypes
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from podium.errors import EXIT_HUNG, EXIT_MISTAKE, EXIT_STOPPED, UserError

_LOOK_SECONDS = 0.05
_GRACE_SECONDS = 15.0  # for the others to notice by themselves, and to say so
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def launch(arguments: Sequence[str], processes: int, restarts: int, say: Callable[[str], None]) -> int:
    """Runs `podium ARGUMENTS` in so many processes; returns the exit code."""
    if processes < 1 or restarts < 0:
        raise UserError(f"-n {processes} must be at least 1 and --restarts {restarts} at least 0")
    if arguments[:1] != ("train",):
        raise UserError("podium launch starts podium train; write podium launch -n 4 -- train …")
    if restarts and not any(a == "--run" or a.startswith("--run=") for a in arguments):
        raise UserError("--restarts needs to know the run to go on with; add --run DIR after train")
    for left in reversed(range(restarts + 1)):
        job = _Job(arguments, processes)
        code, what = job.wait()
        if code in (0, EXIT_STOPPED, EXIT_MISTAKE) or job.was_told_to_end:
            break
        then = f"starting again (restart {restarts - left + 1} of {restarts})" if left else "no restarts left"
        say(f"{what}; {then}")
    return code


class _Job:
    """The processes of one start."""

    was_told_to_end = False
    """By a signal, so that nobody waits for another start."""

    def __init__(self, arguments: Sequence[str], processes: int) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as server:
            coordinator = f"127.0.0.1:{server.getsockname()[1]}"
        with self._passing_signals_on():
            for process in range(processes):
                place = ["--coordinator", coordinator, "--processes", str(processes), "--process", str(process)]
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "podium", *arguments, *place],
                        stdout=None if process == 0 else subprocess.DEVNULL,
                        start_new_session=True,  # a terminal's Ctrl-C comes to us alone, and is passed on once
                        preexec_fn=_die_with_parent,
                    )
                )

    def wait(self) -> tuple[int, str]:
        """The exit code of the first that failed, and in words what became of it; 0 if none did."""
        with self._passing_signals_on():
            while (failed := self._first_failed()) is None and any(p.poll() is None for p in self._processes):
                time.sleep(_LOOK_SECONDS)
            if failed is None:
                return 0, "all ended well"
            deadline = time.monotonic() + _GRACE_SECONDS
            while any(p.poll() is None for p in self._processes) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
            for process in self._processes:
                process.kill()
                process.wait()
        code = self._processes[failed].returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return (128 - code if code < 0 else code), f"process {failed} of {len(self._processes)} {how}"

    def _first_failed(self) -> int | None:
        """The one whose end explains the others': those that lose a peer end by themselves, or JAX aborts them."""
        failed = [number for number, process in enumerate(self._processes) if process.poll()]
        return min(failed, key=lambda n: self._processes[n].returncode in (EXIT_HUNG, -signal.SIGABRT), default=None)

    @contextlib.contextmanager
    def _passing_signals_on(self) -> Any:
        def pass_on(number: int, _: FrameType | None) -> None:
            self.was_told_to_end = True
            for process in self._processes:
                process.send_signal(number)

        before = {s: signal.signal(s, pass_on) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
