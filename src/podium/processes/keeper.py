"""What `podium launch --hosts` starts on every host: says that the host is there, runs one process of the job, passes
signals on to it, and ends it when the launcher goes. It knows nothing of the job but what comes on its standard input,
so that no shell in between has anything to quote.

    out  PORT DOOR            one that is free here, open until the arguments come: whoever reaches it reaches the host;
                              and one that stays open, where whoever comes in sees that the host is still there
    in   {"command": [...], "folder": "...", "environment": {...}}    of the process, which starts and waits
    in   [...]                the rest of its arguments, which it gets on its own standard input
    in   SIGTERM              any number of signals, a line each
    in   (the end)            the process is killed
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def main() -> NoReturn:
    door = socket.create_server(("", 0))
    threading.Thread(target=_open, args=(door,), daemon=True).start()
    with socket.create_server(("", 0)) as server:
        print(server.getsockname()[1], door.getsockname()[1], flush=True)
        order = sys.stdin.readline()
        if not order:
            os._exit(0)
        process = _started(**json.loads(order))
        arguments = sys.stdin.readline()
    if not arguments:
        process.kill()
        os._exit(0)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:  # it has ended already; its exit code says why
        process.stdin.write(arguments.encode())
    for number in (signal.SIGTERM, signal.SIGINT):  # of a scheduler that signals what it has started
        signal.signal(number, lambda number, _: process.send_signal(number))
    threading.Thread(target=_obey, args=(process,), daemon=True).start()
    code = process.wait()
    os._exit(128 - code if code < 0 else code)


def _started(command: Sequence[str], folder: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_die_with_keeper,
    )


def _open(door: socket.socket) -> NoReturn:
    """Lets everybody in and out again."""
    while True:
        with contextlib.suppress(OSError):
            door.accept()[0].close()


def _obey(process: subprocess.Popen[bytes]) -> None:
    for line in sys.stdin:
        process.send_signal(signal.Signals[line.strip()])
    process.kill()


def _die_with_keeper() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
