"""Hosts that are network namespaces of this machine, joined by a bridge: processes in them reach each other only over
their links, and a link can be cut. Needs root. All is removed afterwards, also when a test fails.

Each has an address for its name, and an /etc/hosts of its own in which the machine's name is that address, as on a host
of a cluster.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_BRIDGE, _NET = "podium-bridge", "10.213.97"
_ETC = Path("/etc/netns")


class Namespaces:
    def __init__(self, count: int) -> None:
        self.names = [f"{_NET}.{k}" for k in range(1, count + 1)]

    def cut(self, name: str) -> None:
        """Nothing reaches the host or leaves it, and nobody is told."""
        _ip("link", "set", _link(name), "down")

    def mend(self, name: str) -> None:
        _ip("link", "set", _link(name), "up")


def _link(name: str) -> str:
    return f"podium-{name.rpartition('.')[2]}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def joined(count: int) -> Iterator[Namespaces]:
    """`ip netns exec NAME` runs a command on one of them. This process reaches all from the bridge."""
    hosts = Namespaces(count)
    with contextlib.ExitStack() as stack:
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that all is removed then too
        stack.callback(signal.signal, signal.SIGTERM, before)
        stack.callback(_remove, hosts)
        _remove(hosts)
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("address", "add", f"{_NET}.254/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        for name in hosts.names:
            etc = _ETC / name
            etc.mkdir(parents=True)
            (etc / "hosts").write_text(f"127.0.0.1 localhost\n{name} {socket.gethostname()}\n")
            _ip("netns", "add", name)
            _ip("link", "add", _link(name), "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", _link(name), "master", _BRIDGE, "up")
            for what in (["link", "set", "lo", "up"], ["address", "add", f"{name}/24", "dev", "eth0"]):
                _ip("-netns", name, *what)
            _ip("-netns", name, "link", "set", "eth0", "up")
        yield hosts


def _remove(hosts: Namespaces) -> None:
    for name in hosts.names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", _link(name)], capture_output=True, check=False)
        shutil.rmtree(_ETC / name, ignore_errors=True)
    subprocess.run(["ip", "link", "delete", _BRIDGE], capture_output=True, check=False)


def missing() -> str:
    """Why there can be none here; empty if there can."""
    if os.geteuid():
        return "network namespaces need root"
    return "" if shutil.which("ip") else "ip not installed (Debian's iproute2)"
