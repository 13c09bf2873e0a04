"""Says who is gone when JAX aborts. When the connection to process 0 breaks, JAX's client ends its process by abort(),
with exit code 134 and no name. A handler of SIGABRT looks first whether the coordinator still answers: if it does, the
abort is about something else and takes its course.

The handler runs in the thread that aborts, which waits for nothing and holds no lock of Python's.
"""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import NoReturn

from podium.errors import EXIT_HUNG

_PATIENCE_SECONDS = 5.0
_libc = ctypes.CDLL(None, use_errno=True)
_kept: list[object] = []  # the C function must outlive everything


def name_lost_coordinator(address: str, process: int) -> None:
    """From now on, an abort while nobody answers at `address` ends this process in one line, with exit code 70."""

    def aborted(number: int) -> None:
        _libc.signal(number, None)  # the default: whatever happens here, the abort is not lost
        if reason := silence(address):
            end(f"process 0, the coordinator, is gone ({reason})", process)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(aborted)
    _kept.append(handler)
    _libc.signal(signal.SIGABRT, handler)


def silence(address: str) -> str | None:
    """Why nobody answers at `address`; None if somebody does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_SECONDS).close()
    except OSError as error:
        return f"{address}: {error.strerror or 'no answer'}"
    return None


def end(reason: str, process: int) -> NoReturn:
    """Ends this process at once, after all that was registered with `before_end`."""
    for act in tuple(_before_end):
        reason = act(reason)
    line = f"podium: process {process}: {reason}; the same command resumes from the last checkpoint"
    try:
        print(line, file=sys.stderr, flush=True)
    finally:  # whether or not anybody can read it
        os._exit(EXIT_HUNG)  # an orderly end would wait for the others


_before_end: list[Callable[[str], str]] = []


def before_end(act: Callable[[str], str]) -> None:
    """`act` gets the reason, and returns it with what it has done added."""
    _before_end.append(act)


def forget(act: Callable[[str], str]) -> None:
    _before_end.remove(act)
