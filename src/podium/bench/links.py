"""Hosts as network namespaces, joined by veth pairs in a physical 2-D torus whose every link is rate-limited by a
token bucket. A host routes to its neighbours over its own links and to everyone else through them (X first, then Y),
so an algorithm that uses one link at a time shows it. Needs root. What it makes is removed when the context ends, by
a guardian process when the owner is killed, and by the next start should that be killed too. It starts no workers and
measures nothing."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from podium.errors import UserError
from podium.recipe.torus import Shape

_NETNS_ETC = Path("/etc/netns")
# Large frames: at 1500 bytes each, 16 hosts on two cores are bound by the kernel's work per packet and not by their
# links (seen, 4 MB at 200 Mbit/s: 0.97 s against 0.29 s). Larger ones than these pass faster still, but for the wrong
# reason: an idle link saves up tokens for one frame, and a ring, which rests between its ticks, outruns its own bound
# (seen, 4 MB at 100 Mbit/s: by 9 % with this size, by 21 % with twice this size).
_FRAME_BYTES = 18_000
# A bucket must hold a frame. It is 1.6 ms of a 100 Mbit/s link: so much idle time a link can make good, not more.
_BURST_BYTES = 20_000
# More than a message, so that a full link delays and never drops.
_QUEUE_BYTES = 64_000_000
# Links carry data both ways, and an acknowledgement, or gloo's word that a buffer is ready, should not wait behind a
# whole message going the same way: short packets go first (seen, 4 MB on 16 hosts: 0.27 against 0.30 s), and few of
# the long ones wait (seen, 16 MB on 9 hosts: 57 % of the bound with the kernel's default of some MB in flight per
# socket, 78 % with two packets). Reno, because cubic takes that wait for congestion (seen: 52 against 48 % on 16
# hosts). Buffers hold a whole message; windows outlive the pauses between.
_SETTINGS = {
    "ip_forward": "1",
    "tcp_congestion_control": "reno",
    "tcp_limit_output_bytes": "16384",
    "tcp_slow_start_after_idle": "0",
    "tcp_wmem": "4096 4194304 16777216",
    "tcp_rmem": "4096 4194304 16777216",
}


Place = tuple[int, int]
"""(row, column) of a host."""


@dataclass(frozen=True)
class Host:
    """Where a worker runs: its address and what to put before its command line."""

    address: str
    command_prefix: tuple[str, ...]


def links_per_host(torus: Shape) -> int:
    """Two links along an axis; one where both neighbours are the same host; none where there is no other."""
    return sum(min(size - 1, 2) for size in torus[:2])


@contextmanager
def shared_loopback(hosts: int) -> Iterator[list[Host]]:
    yield [Host("127.0.0.1", ())] * hosts


@contextmanager
def torus_links(torus: Shape, rate: str, *, dead: tuple[int, ...] = ()) -> Iterator[list[Host]]:
    """A host at every place of the torus but those numbered in `dead`; `rate` as tc writes it: 200mbit."""
    rate_bytes_per_second(rate)
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        raise UserError(
            "torus links need root and the ip and tc commands (network namespaces); run as root or use --links shared"
        )
    _remove_stale()
    prefix = f"podium-{os.getpid()}-"
    guardian = subprocess.Popen(
        [sys.executable, "-m", "podium.bench.links", prefix],
        stdin=subprocess.PIPE, start_new_session=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    try:
        yield _build(prefix, torus, rate, dead=dead)
    finally:
        guardian.communicate()  # closes its stdin, upon which it removes everything


def rate_bytes_per_second(rate: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(k|m|g)bit", rate)
    if not match:
        raise UserError(f"rate {rate!r} is not a link rate; write it like 200mbit or 1gbit")
    return float(match[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[match[2]] / 8


def _build(prefix: str, torus: Shape, rate: str, *, dead: tuple[int, ...]) -> list[Host]:
    places = [(r, c) for r in range(torus.rows) for c in range(torus.cols) if r * torus.cols + c not in dead]
    name = {place: f"{prefix}{place[0]}-{place[1]}" for place in places}
    address = {(r, c): f"10.77.{r}.{c + 1}" for r, c in places}
    for place in places:
        _run("ip", "netns", "add", name[place])
        etc = _NETNS_ETC / name[place]
        etc.mkdir(parents=True)
        # gloo listens on the address that the host's own name resolves to.
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{address[place]} {socket.gethostname()}\n")
    for place in places:
        for device, other in _forward_links(place, torus):
            if other not in name:
                continue
            ends = (f"{device}+ netns {name[place]} type veth", f"peer name {device}- netns {name[other]}")
            _run("ip", "link", "add", *" ".join(ends).split())
    for place in places:
        hops = {target: next_hop(place, target, torus) for target in places if target != place}
        if dead:
            hops = _hops_around(place, places, torus)
        routes = {address[target]: (hop.device, address[hop.neighbour]) for target, hop in hops.items()}
        _configure(name[place], address[place], routes)
        _limit(name[place], rate)
    return [Host(address[place], ("ip", "netns", "exec", name[place])) for place in places]


def _forward_links(place: Place, torus: Shape) -> list[tuple[str, Place]]:
    """The links a host opens, as (axis, neighbour): one to +X and one to +Y. In a ring of two, one link joins both."""
    (r, c), (rows, cols, _), links = place, torus, []
    if cols > 2 or (cols == 2 and c == 0):
        links.append(("x", (r, (c + 1) % cols)))
    if rows > 2 or (rows == 2 and r == 0):
        links.append(("y", ((r + 1) % rows, c)))
    return links


def _configure(name: str, own: str, routes: dict[str, tuple[str, str]]) -> None:
    """Gives a host its address `own` and, for every other address, the (device, neighbour's address) to send by."""
    devices = _devices(name)
    ip = ["link set lo up", f"addr add {own}/32 dev lo"] + [
        f"link set {device} mtu {_FRAME_BYTES} gso_max_size {_FRAME_BYTES} up" for device in devices
    ]
    for target, (device, neighbour) in routes.items():
        ip.append(f"route add {target}/32 via {neighbour} dev {device} onlink src {own}")
    _run("ip", "-n", name, "-batch", "-", stdin="\n".join(ip))
    settings = _SETTINGS | {f"conf/{device}/rp_filter": "0" for device in ["all", *devices]}
    for key, value in settings.items():
        _run("ip", "netns", "exec", name, "tee", f"/proc/sys/net/ipv4/{key}", stdin=value)


def _limit(name: str, rate: str) -> None:
    tc = [line for device in _devices(name) for line in _queues(device, rate)]
    _run("tc", "-n", name, "-batch", "-", stdin="\n".join(tc))


def _devices(name: str) -> list[str]:
    lines = _run("ip", "-n", name, "-o", "link", "show", "type", "veth").splitlines()
    return [line.split()[1].split("@")[0].rstrip(":") for line in lines]


def _queues(device: str, rate: str) -> list[str]:
    """The token bucket that is the link, and in it two queues: packets of less than 256 bytes, then all others. (The
    kernel's ordinary queue with priorities is htb; its own rates are far above the bucket's and limit nothing.)"""
    unlimited = "rate 10gbit burst 1m cburst 1m"
    return [
        f"qdisc add dev {device} root handle 1: tbf rate {rate} burst {_BURST_BYTES} limit {_QUEUE_BYTES}",
        f"qdisc add dev {device} parent 1:1 handle 2: htb default 2",
        f"class add dev {device} parent 2: classid 2:1 htb {unlimited} prio 0",
        f"class add dev {device} parent 2: classid 2:2 htb {unlimited} prio 1",
        f"filter add dev {device} parent 2: protocol ip u32 match u16 0 0xff00 at 2 flowid 2:1",
    ]


class Hop(NamedTuple):
    device: str
    neighbour: Place


def next_hop(place: Place, target: Place, torus: Shape) -> Hop:
    """The first hop of the shortest path, along X until the column is right, then along Y."""
    (r, c), (target_r, target_c), (rows, cols, _) = place, target, torus
    if c != target_c:
        end, column = _towards(c, target_c, cols)
        return Hop(f"x{end}", (r, column))
    end, row = _towards(r, target_r, rows)
    return Hop(f"y{end}", (row, c))


def _hops_around(place: Place, places: list[Place], torus: Shape) -> dict[Place, Hop]:
    """The first hop of a shortest way to every other host over hosts that live."""
    ways: dict[Place, list[Hop]] = {living: [] for living in places}
    for living in places:
        for device, other in _forward_links(living, torus):
            if other in ways:
                ways[living].append(Hop(f"{device}+", other))
                ways[other].append(Hop(f"{device}-", living))
    first = {hop.neighbour: hop for hop in ways[place]}
    reached = list(first)
    for near in reached:  # grows as it is walked
        for hop in ways[near]:
            if hop.neighbour != place and hop.neighbour not in first:
                first[hop.neighbour] = first[near]
                reached.append(hop.neighbour)
    return first


def _towards(index: int, target: int, size: int) -> tuple[str, int]:
    """The end of the link to take around a ring, and the next index. In a ring of two, each host has one link."""
    forward = (target - index) % size * 2 <= size
    end = index == 0 if size == 2 else forward
    return "+" if end else "-", (index + (1 if forward else -1)) % size


def _remove(prefix: str) -> None:
    for line in _run("ip", "netns", "list").splitlines():
        if (name := line.split()[0]).startswith(prefix):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
    for etc in _NETNS_ETC.glob(f"{prefix}*"):
        shutil.rmtree(etc, ignore_errors=True)


def _remove_stale() -> None:
    names = [line.split()[0] for line in _run("ip", "netns", "list").splitlines()] + [
        p.name for p in _NETNS_ETC.glob("podium-*")
    ]
    owners = {match[1] for name in names if (match := re.match(r"podium-(\d+)-", name))}
    for owner in owners:
        if not Path(f"/proc/{owner}").exists():
            _remove(f"podium-{owner}-")


def _run(*command: str, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.stdin.read()  # ends when the owner closes it, or dies
    _remove(sys.argv[1])
