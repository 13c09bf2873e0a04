"""Several processes of one run on this machine: `podium launch -n 4 -- train …` starts them, passes signals on, ends
all when one has died, says which, and restarts them from the last checkpoint as often as allowed. On a cluster this is
the work of Slurm, MPI or Kubernetes.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from podium.errors import EXIT_HUNG, EXIT_MISTAKE, EXIT_STOPPED, UserError
from podium.host.accelerators import nvidia_files
from podium.host.gpus import share_out

_LOOK_SECONDS = 0.05
_GRACE_SECONDS = 15.0  # for the others to notice by themselves, and to say so
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def launch(arguments: Sequence[str], processes: int, *, restarts: int, say: Callable[[str], None]) -> int:
    """Runs `podium ARGUMENTS` in so many processes; returns the exit code."""
    if processes < 1 or restarts < 0:
        raise UserError(f"-n {processes} must be at least 1 and --restarts {restarts} at least 0")
    if arguments[:1] != ("train",):
        raise UserError("podium launch starts podium train; write podium launch -n 4 -- train …")
    if restarts and not any(a == "--run" or a.startswith("--run=") for a in arguments):
        raise UserError("--restarts needs to know which run to resume; add --run DIR after train")
    environments = _environments(processes)
    for left in reversed(range(restarts + 1)):
        with Job(_commands(arguments, processes), environments) as job:
            ended = job.wait()
        if ended.code in (0, EXIT_STOPPED, EXIT_MISTAKE) or job.was_signalled:
            break
        then = f"restarting ({restarts - left + 1} of {restarts})" if left else "no restarts left"
        say(f"{ended.how}; {then}")
    return ended.code


def _commands(arguments: Sequence[str], processes: int) -> list[list[str]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        coordinator = f"127.0.0.1:{server.getsockname()[1]}"
    cluster = ["--coordinator", coordinator, "--processes", str(processes), "--process"]
    return [[sys.executable, "-m", "podium", *arguments, *cluster, str(k)] for k in range(processes)]


def _environments(processes: int) -> list[dict[str, str]]:
    """Every process has GPUs of its own, in equal shares, where there are any."""
    gpus, chosen = len(nvidia_files()), os.environ.get("JAX_PLATFORMS", "")
    if not gpus or (chosen and "cuda" not in chosen and "gpu" not in chosen):
        return [{}] * processes
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    shares = share_out(processes, gpus, visible)
    if not shares:
        there = f"CUDA_VISIBLE_DEVICES={visible}" if visible is not None else f"{gpus} GPUs"
        raise UserError(
            f"-n {processes} processes cannot share {there} equally; choose a number that divides them, or set "
            f"CUDA_VISIBLE_DEVICES, or JAX_PLATFORMS=cpu to leave the GPUs alone"
        )
    return [{"CUDA_VISIBLE_DEVICES": share} for share in shares]


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
        commands: Sequence[Sequence[str]],
        environments: Sequence[dict[str, str]] = (),
        *,
        grace_seconds: float = _GRACE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._commands, self._grace_seconds, self._clock, self._sleep = commands, grace_seconds, clock, sleep
        self._environments = environments or [{}] * len(commands)
        """What each has beside this process's environment."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._passing_on = contextlib.ExitStack()
        self.was_signalled = False
        """Whether this job was told to end, so that it is not started again."""

    def __enter__(self) -> "Job":
        self._passing_on.enter_context(self._signals_passed_on())
        for command, environment in zip(self._commands, self._environments, strict=True):
            self._processes.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **environment},
                    stdout=subprocess.DEVNULL if self._processes else None,  # the first reports for all
                    start_new_session=True,  # a terminal's Ctrl-C comes to us alone, and is passed on once
                    preexec_fn=_die_with_parent,
                )
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._passing_on.close()

    def wait(self) -> Ended:
        """Waits until all have ended. When one has failed, the others have some seconds to end by themselves."""
        while (failed := self._first_failed()) is None and self._any_runs():
            self._sleep(_LOOK_SECONDS)
        if failed is None:
            return Ended(0, "all processes succeeded")
        deadline = self._clock() + self._grace_seconds
        while self._any_runs() and self._clock() < deadline:
            self._sleep(_LOOK_SECONDS)
        for process in self._processes:
            process.kill()
            process.wait()
        code, who = self._processes[failed].returncode, f"process {failed} of {len(self._processes)}"
        if code < 0:
            return Ended(128 - code, f"{who} was ended by {signal.Signals(-code).name}")
        return Ended(code, f"{who} ended with exit code {code}")

    def _any_runs(self) -> bool:
        return any(process.poll() is None for process in self._processes)

    def _first_failed(self) -> int | None:
        """The one whose end explains the others': those that lose a peer end by themselves, or JAX aborts them."""
        failed = [number for number, process in enumerate(self._processes) if process.poll()]
        return min(failed, key=lambda n: self._processes[n].returncode in (EXIT_HUNG, -signal.SIGABRT), default=None)

    @contextlib.contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        def pass_on(number: int, _: FrameType | None) -> None:
            self.was_signalled = True
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
