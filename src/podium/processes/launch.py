"""Several processes of one run on this machine: `podium launch -n 4 -- train …` starts them, passes signals on, ends
all when one has died, says which, and restarts them from the last checkpoint as often as allowed. On a cluster this is
the work of Slurm, MPI or Kubernetes, or of `podium launch --hosts` (`hosts`).
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial

from podium.errors import EXIT_MISTAKE, EXIT_STOPPED, UserError
from podium.host.accelerators import nvidia_files
from podium.host.gpus import share_out
from podium.processes.hosts import Hosts, launch_on_hosts
from podium.processes.job import Job

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def launch(
    arguments: Sequence[str], processes: int, *, restarts: int, say: Callable[[str], None], hosts: Hosts | None = None
) -> int:
    """Runs `podium ARGUMENTS` in so many processes, or one on each of the hosts; returns the exit code."""
    if processes < 1 or restarts < 0:
        raise UserError(f"-n {processes} must be at least 1 and --restarts {restarts} at least 0")
    if arguments[:1] != ("train",):
        raise UserError("podium launch starts podium train; write podium launch -n 4 -- train …")
    needs_run = "--restarts" if restarts else "--hosts" if hosts else ""
    if needs_run and not any(a == "--run" or a.startswith("--run=") for a in arguments):
        raise UserError(f"{needs_run} needs to know which run to resume; add --run DIR after train")
    if hosts:
        return launch_on_hosts(arguments, hosts, restarts=restarts, say=say)
    environments = _environments(processes)
    for left in reversed(range(restarts + 1)):
        with Job(_starts(arguments, environments)) as job:
            ended = job.wait()
        if ended.code in (0, EXIT_STOPPED, EXIT_MISTAKE) or job.was_signalled:
            break
        then = f"restarting ({restarts - left + 1} of {restarts})" if left else "no restarts left"
        say(f"{ended.how}; {then}")
    return ended.code


def _starts(
    arguments: Sequence[str], environments: Sequence[dict[str, str]]
) -> list[Callable[[], subprocess.Popen[bytes]]]:
    commands = _commands(arguments, len(environments))
    both = enumerate(zip(commands, environments, strict=True))
    return [partial(_start, command, environment, shows=k == 0) for k, (command, environment) in both]


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


def _start(command: Sequence[str], environment: dict[str, str], *, shows: bool) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=None if shows else subprocess.DEVNULL,  # the first reports for all
        start_new_session=True,  # a terminal's Ctrl-C comes to us alone, and is passed on once
        preexec_fn=_die_with_parent,
    )


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
