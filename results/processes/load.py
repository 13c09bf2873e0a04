"""Thousands of processes at one coordinator: the real agreements of a start and the real roll call of the watchdog, by
real clients of JAX's coordination service with a connection each, in a few processes of this machine (process 0 has one
to itself, as in a job). Counts every byte on the wire, both ways, with the headers of TCP and IP: they run in a network
namespace of their own, on its loopback. Then the last of them is frozen or killed. Prints JSON. Needs root, or a kernel
that lets users make namespaces.

    python results/processes/load.py --processes 4096 [--workers 4] [--seconds 60] [--how killed]
"""

import argparse
import functools
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from jax._src.lib import _jax

from podium.processes import connections
from podium.processes.agree import Board
from podium.train.roll_call import RollCall

_PORT = 45123
_PATIENCE_SECONDS = 900
_LOOK_SECONDS = 1.0
_STACK_BYTES = 1 << 18


class Member:
    """One simulated process: a client with its own connection, as each has its own address to call."""

    def __init__(self, process: int, processes: int) -> None:
        address = f"127.{1 + (process >> 16)}.{process >> 8 & 255}.{process & 255}"
        self.far_end = f"{int(IPv4Address(address)).to_bytes(4, 'little').hex().upper()}:{_PORT:04X}"
        self.client = _jax.get_distributed_runtime_client(
            f"{address}:{_PORT}",
            process,
            init_timeout=_PATIENCE_SECONDS,
            heartbeat_timeout=_PATIENCE_SECONDS,
            shutdown_on_destruction=False,
            use_compression=True,
        )
        self.board = Board(self.client, process, processes)
        self.process = process
        self.roll_call: RollCall | None = None
        self.told: tuple[float, str] | None = None

    def start_up(self) -> None:
        """As many agreements of each kind as a start of `podium train` has (train/run.py, setup.py, loop.py)."""
        host = f"node{self.process // 4:05}"
        outcome = {"host": host}
        self.board.neighbours(host)
        place = self.board.meet(outcome)
        if self.process == 0:
            assert len(self.board.posted(place)) == self.board.processes
        for _ in range(6):
            place = self.board.meet()
            if self.process == 0:
                assert not self.board.posted(place)
        for _ in range(16):
            assert self.board.tell(lambda: {"value": "runs/resnet50-20261118-120000"})
        self.board.meet()

    def post(self, place: str, value: Any) -> None:
        if place.endswith("verdict") and value and not self.told:
            self.told = time.time(), value  # process 0, which posts it
        self.board.post(place, value)

    def posted(self, place: str) -> dict[int, Any]:
        return self.board.posted(place)

    def awaited(self, place: str, seconds: float) -> Any:
        """Notes when a verdict is heard. The watchdog acts upon it at its next look, within a second."""
        found = self.board.awaited(place, seconds)
        if found and not self.told:
            self.told = time.time(), found
        return found

    def connection(self) -> str:
        """As `podium.processes.connections.ours` finds it, which knows one connection for each process."""
        return near_ends()[self.far_end]

    def connections(self) -> set[str]:
        return connections.at(_PORT)

    def look(self) -> None:
        if self.roll_call is None:
            self.roll_call = RollCall(self.process, self.board.processes, look_seconds=_LOOK_SECONDS, store=self)
        self.roll_call.look("training, step 90000", 90000)


@functools.cache
def near_ends() -> dict[str, str]:
    return {far[-13:]: near[-13:] for near, far, _ in connections.established()}


def look_on(members: list[Member], over: threading.Event) -> None:
    """Every member looks once a second, each at its own moment of it."""
    pause = _LOOK_SECONDS / len(members)
    due = time.monotonic()
    while not over.is_set():
        for member in members:
            due += pause
            time.sleep(max(0.0, due - time.monotonic()))
            member.look()


def in_threads(acts: list[Callable[[], Any]]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def work(numbers: range, processes: int, orders: Any, answers: Any) -> None:
    """A process of this machine that plays those of `numbers`."""
    threading.stack_size(_STACK_BYTES)
    members = [Member(number, processes) for number in numbers]
    looking = threading.Thread(target=partial(look_on, members, threading.Event()), daemon=True)
    while order := orders.get():
        if order[0] == "connect":
            in_threads([member.client.connect for member in members])
        elif order[0] == "start up":
            in_threads([member.start_up for member in members])
        elif order[0] == "watch":
            looking.start()
        answers.put([member.told for member in members] if order[0] == "told" else None)


def wire_bytes() -> int:
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split()[1])


class Crew:
    def __init__(self, processes: int, workers: int) -> None:
        context = get_context("spawn")
        # Process 0 is alone, as in a job: what it judges waits for nobody. So is the last, which will be lost.
        firsts = [0, *(1 + k * (processes - 2) // workers for k in range(workers)), processes - 1, processes]
        shares = [range(first, after) for first, after in pairwise(firsts)]
        self.orders = [context.Queue() for _ in shares]
        self.answers = context.Queue()
        self.workers: list[Any] = []
        for numbers, orders in zip(shares, self.orders, strict=True):
            self.workers.append(context.Process(target=work, args=(numbers, processes, orders, self.answers)))
            self.workers[-1].start()

    def do(self, *order: Any) -> list[Any]:
        for orders in self.orders:
            orders.put(order)
        return [self.answers.get(timeout=_PATIENCE_SECONDS) for _ in self.orders]

    def counted(self, *order: Any) -> dict[str, float]:
        before, began = wire_bytes(), time.monotonic()
        self.do(*order)
        used, seconds = wire_bytes() - before, time.monotonic() - began
        return {"megabytes": round(used / 1e6, 2), "seconds": round(seconds, 1)}


def lost_one(crew: Crew, processes: int, how: str) -> dict[str, Any]:
    """What is told, and when, after the last process is killed or frozen."""
    crew.orders.pop()
    began = time.time()
    os.kill(crew.workers[-1].pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    told: list[Any] = [None]
    while not all(told):
        time.sleep(1)
        told = [entry for answer in crew.do("told") for entry in answer]
    moments = sorted(entry[0] for entry in told)
    patience = RollCall(0, processes, look_seconds=_LOOK_SECONDS).lost_seconds
    return {
        "how": how,
        "line": told[1][1],
        "told": len(told),
        "patience_seconds": round(patience, 1),
        "posted_seconds_after_loss": round(moments[0] - began, 1),
        "read_by_all_seconds_after_posting": round(moments[-1] - moments[0], 1),
    }


def measure(processes: int, workers: int, seconds: float, how: str) -> dict[str, Any]:
    service = _jax.get_distributed_runtime_service(f"0.0.0.0:{_PORT}", processes, heartbeat_timeout=_PATIENCE_SECONDS)
    crew = Crew(processes, workers)
    found: dict[str, Any] = {"processes": processes, "connect": crew.counted("connect")}
    connections = subprocess.run(["ss", "-Htn", "state", "established"], capture_output=True, text=True, check=True)
    found["connections"] = connections.stdout.count(f":{_PORT} ")
    found["start_up"] = crew.counted("start up")
    crew.do("watch")
    time.sleep(seconds / 4)  # until the first signs are in
    before, began = wire_bytes(), time.monotonic()
    time.sleep(seconds)
    rate = (wire_bytes() - before) / (time.monotonic() - began)
    found["watching_megabytes_per_second"] = round(rate / 1e6, 3)
    assert not any(entry for answer in crew.do("told") for entry in answer), "somebody was missed"
    found["one_lost"] = lost_one(crew, processes, how)
    for worker in crew.workers:
        worker.kill()  # an orderly end of a client would wait for all others
    service.shutdown()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--how", choices=("frozen", "killed"), default="frozen")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.inside:
        inside = f'ip link set lo up && exec "{sys.executable}" "$0" --inside "$@"'
        os.execvp("unshare", ["unshare", "--net", "bash", "-c", inside, __file__, *sys.argv[1:]])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    found = measure(given.processes, given.workers, given.seconds, given.how)
    command = f"python results/processes/load.py --processes {given.processes} --workers {given.workers}"
    about = {
        "command": f"{command} --seconds {given.seconds:g} --how {given.how}",
        "commit": commit,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(about | found, indent=1), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
