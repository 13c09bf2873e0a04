"""Which connections to the coordinator are open, as Linux knows it (/proc/net/tcp): when a process is killed its kernel
closes them at once, while its last sign of life is still fresh. Elsewhere, and behind a translated address, nothing is
found, and nothing follows from that.
"""

import contextlib
import os
from collections.abc import Iterator

_ESTABLISHED = "01"
_LAST_WORD = -13  # of an address as the kernel writes it, 0100007F:D431: IPv4, alone or mapped into IPv6


def established() -> Iterator[tuple[str, str, str]]:
    """Near end, far end and the socket's name of every open connection, as the kernel writes them."""
    for file in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with contextlib.suppress(OSError), open(file) as lines:
            for line in lines:
                fields = line.split()
                if fields[3] == _ESTABLISHED:
                    yield fields[1], fields[2], f"socket:[{fields[9]}]"


def ours(port: int) -> str:
    """The near end of this process's connection to that port, as the far end sees it too; empty if there is none."""
    sockets = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                sockets.add(os.readlink(f"/proc/self/fd/{name}"))
    there = f":{port:04X}"
    found = (near[_LAST_WORD:] for near, far, socket in established() if far.endswith(there) and socket in sockets)
    return next(found, "")


def at(port: int) -> set[str]:
    """The far ends of all connections to this port of this host."""
    return {far[_LAST_WORD:] for near, far, _ in established() if near.endswith(f":{port:04X}")}
