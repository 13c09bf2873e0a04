"""`podium launch --hosts`: one process on each of several hosts. A job that loses a host goes on with those that are
left, as long as they are enough, and with all again when it is back. Order, crops and batch-norm groups do not depend
on the number of hosts (docs/concepts/order.md), so every step sees the same images.

A host is there when a keeper (`keeper`) that the remote shell started on it says a port, and that port is reached from
here: this is how the others will reach it.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from podium.errors import EXIT_HUNG, EXIT_MISTAKE, EXIT_STOPPED, UserError
from podium.processes.doors import watched
from podium.processes.job import Job

_LOOK_SECONDS = 0.05
_REACH_SECONDS = 5.0
_KILL_SECONDS = 2.0
_PASSED_ON = ("JAX_", "XLA_", "NCCL_", "LIBTPU_", "TPU_", "PODIUM_", "XDG_CACHE_HOME")


@dataclass(frozen=True)
class Patience:
    """In seconds."""

    enough: float = 300.0
    """For so many hosts as are needed."""
    first: float = 30.0
    """At the first start, for the rest of them …"""
    settle: float = 2.0
    """… and after a loss, when training waits."""
    again: float = 5.0
    """Between two looks at hosts that are missing."""


_USUAL = Patience()


@dataclass(frozen=True)
class Hosts:
    names: tuple[str, ...]
    shell: tuple[str, ...]
    """What starts a command on a host: SHELL… HOST COMMAND…"""
    least: int
    """Fewer processes than these do not train."""
    command: tuple[str, ...] = (sys.executable, "-m", "podium")
    """What runs on them. Its last arguments come on its standard input (`cli.waiting`)."""
    patience: Patience = _USUAL


class Kept:
    """A keeper on a host, and later the process that it keeps."""

    def __init__(self, name: str, shell: Sequence[str]) -> None:
        self.name, self.port, self.door = name, 0, ("", 0)
        self.is_there = threading.Event()
        self._shows = False
        command = [*shell, name, sys.executable, "-m", "podium.processes.keeper"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        threading.Thread(target=self._listen, name=f"podium-{name}", daemon=True).start()

    def make_ready(self, command: Sequence[str]) -> "Kept":
        """Has the keeper start a command, which loads what it needs and waits for the rest of its arguments."""
        environment = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        self._say(json.dumps({"command": command, "folder": os.getcwd(), "environment": environment}))
        return self

    def start(self, arguments: Sequence[str], *, shows: bool) -> "Kept":
        """Gives it the rest of its arguments, and has what it prints printed here if it `shows`."""
        self._shows = shows
        self._say(json.dumps(arguments))
        return self

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended, or was told to
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        first = self._process.stdout.readline().split()
        if len(first) == 2 and all(word.isdigit() for word in first):
            self.port, door = map(int, first)
            with contextlib.suppress(OSError), self._reached() as found:
                self.door = found.getpeername()[0], door  # an address: names may fail later
                self.is_there.set()
        with self._process.stdout:
            for line in self._process.stdout:
                if self._shows:
                    print(line, end="", flush=True)
        self.kill()  # it has ended: its other pipe is closed too
        self._process.wait()

    def _reached(self) -> socket.socket:
        return socket.create_connection((self.name, self.port), _REACH_SECONDS)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def poll(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        self._say(signal.Signals(number).name)

    def kill(self) -> None:
        """The keeper kills its process when nobody talks to it any more."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def wait(self) -> int:
        try:
            return self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:  # a shell that waits for a host that is gone
            self._process.kill()
            return self._process.wait()


def gather(hosts: Hosts, say: Callable[[str], None], *, settle_seconds: float) -> list[Kept]:
    """A keeper on each host that is there, in their order; waits for the least number, and then not long for more."""
    kept: dict[str, Kept] = {}
    began, enough, told = time.monotonic(), None, False
    while (now := time.monotonic()) - began < hosts.patience.enough:
        for name in hosts.names:
            if name not in kept or (kept[name].poll() is not None and now - began > settle_seconds):
                kept[name] = Kept(name, hosts.shell).make_ready(hosts.command)
        there = [name for name in hosts.names if kept[name].is_there.is_set() and kept[name].poll() is None]
        if len(there) >= hosts.least:
            enough = enough or now
            if len(there) == len(hosts.names) or now - enough > settle_seconds:
                break
        elif not told and now - began > hosts.patience.first:
            told = True
            say(f"{len(there)} of at least {hosts.least} hosts are there; waiting")
        time.sleep(_LOOK_SECONDS)
    for name in set(hosts.names) - set(there):
        kept[name].kill()
    return [kept[name] for name in there]


class _Gathering(threading.Thread):
    """Gathers the hosts of the next start while the last one still ends."""

    def __init__(self, hosts: Hosts, say: Callable[[str], None]) -> None:
        super().__init__(name="podium-gathering", daemon=True)
        self._hosts, self._say = hosts, say
        self._kept: list[Kept] = []
        self.start()

    def run(self) -> None:
        self._kept = gather(self._hosts, self._say, settle_seconds=self._hosts.patience.settle)

    def gathered(self) -> list[Kept]:
        self.join()
        return self._kept


@contextlib.contextmanager
def _returns(names: Sequence[str], hosts: Hosts) -> Iterator[Callable[[], list[str]]]:
    """Tells which of the missing hosts are there again, twice in a row, while its `with` lasts."""
    back: list[str] = []
    over = threading.Event()

    def look() -> None:
        before: set[str] = set()
        while not over.wait(hosts.patience.again):
            kept = [Kept(name, hosts.shell) for name in names]
            deadline = time.monotonic() + _REACH_SECONDS
            there = {k.name for k in kept if k.is_there.wait(max(0.0, deadline - time.monotonic()))}
            for k in kept:
                k.kill()
                k.wait()
            back[:] = sorted(there & before)
            before = there

    thread = threading.Thread(target=look, name="podium-missing-hosts", daemon=True)
    if names:
        thread.start()
    try:
        yield lambda: list(back)
    finally:
        over.set()


def launch_on_hosts(arguments: Sequence[str], hosts: Hosts, *, restarts: int, say: Callable[[str], None]) -> int:
    """Runs `podium ARGUMENTS` on the hosts, and on those that are left; returns the exit code."""
    _check(hosts)
    hosts = replace(hosts, command=(*hosts.command, *arguments, "-"))
    left, refused = restarts, set[int]()
    next_start: list[_Gathering] = []

    def failing(code: int) -> None:
        if left and code not in (EXIT_STOPPED, EXIT_MISTAKE):
            next_start.append(_Gathering(hosts, say))

    settle_seconds = hosts.patience.first
    while True:
        there = next_start.pop().gathered() if next_start else gather(hosts, say, settle_seconds=settle_seconds)
        settle_seconds = hosts.patience.settle
        count = max((n for n in range(hosts.least, len(there) + 1) if n not in refused), default=0)
        if not count:
            say(f"{len(there)} of {len(hosts.names)} hosts are there, and {hosts.least} are needed")
            return EXIT_HUNG
        for spare in there[count:]:
            spare.kill()
        missing = [name for name in hosts.names if name not in _names(there)]
        if count < len(hosts.names):
            say(f"training on {count} of {len(hosts.names)} hosts; missing: {', '.join(missing) or 'none'}")
        with (
            Job(_starts(there[:count], hosts), _names(there[:count])) as job,
            _returns(missing, hosts) as returned,
            watched({kept.name: kept.door for kept in there[:count]}) as gone,
        ):
            grows = partial(_allows_more, count=count, there=len(there), returned=returned, refused=refused)
            ended = job.wait(stops=grows, failing=failing, gone=gone)
            back = returned()
        if job.was_signalled or ended.code == 0:
            return ended.code
        if ended.code == EXIT_STOPPED and back:
            say(f"{', '.join(back)} is back; continuing")
        elif ended.code == EXIT_MISTAKE and hosts.least < count < len(hosts.names):
            refused.add(count)  # most often a batch that so many do not divide
            say(f"{count} hosts cannot train this recipe; trying fewer")
        elif ended.code in (EXIT_STOPPED, EXIT_MISTAKE) or not left:
            say(ended.how + ("; no restarts left" if restarts else ""))
            return ended.code
        else:
            left -= 1
            say(f"{ended.how}; restarting ({restarts - left} of {restarts})")


def _allows_more(*, count: int, there: int, returned: Callable[[], list[str]], refused: set[int]) -> bool:
    """Whether the hosts that have returned make it possible to train on more than `count`."""
    return any(n not in refused for n in range(count + 1, there + len(returned()) + 1))


def _names(kept: Sequence[Kept]) -> list[str]:
    return [k.name for k in kept]


def _starts(kept: Sequence[Kept], hosts: Hosts) -> list[Callable[[], Kept]]:
    """The recipe's torus is that of all hosts; fewer are laid out by themselves."""
    fewer = ["--set", "torus=auto"] if len(kept) < len(hosts.names) else []
    coordinator = f"{kept[0].name}:{kept[0].port}"
    cluster = ["--coordinator", coordinator, "--processes", str(len(kept)), "--process"]
    return [partial(k.start, [*fewer, *cluster, str(number)], shows=number == 0) for number, k in enumerate(kept)]


def _check(hosts: Hosts) -> None:
    if not 1 <= hosts.least <= len(hosts.names) or len(set(hosts.names)) < len(hosts.names):
        raise UserError(
            f"--min-processes {hosts.least} must be from 1 to the number of different --hosts, {len(set(hosts.names))}"
        )
