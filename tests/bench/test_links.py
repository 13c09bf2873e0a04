"""Routing without root; with root, the real namespaces: that they carry data and that nothing of them stays behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.bench import links
from podium.bench.links import links_per_host, next_hop, rate_bytes_per_second, torus_links
from podium.errors import UserError
from podium.recipe.torus import Shape

CAN_BUILD = os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc")
sides = st.integers(1, 6)


@given(rows=sides, cols=sides, data=st.data())
def test_every_host_is_reached_over_the_shortest_way(rows: int, cols: int, data: st.DataObject) -> None:
    place = data.draw(st.tuples(st.integers(0, rows - 1), st.integers(0, cols - 1)))
    target = data.draw(st.tuples(st.integers(0, rows - 1), st.integers(0, cols - 1)))
    shortest = sum(min((b - a) % n, (a - b) % n) for a, b, n in zip(place, target, (rows, cols), strict=True))
    hops = 0
    while place != target:
        device, place = next_hop(place, target, Shape(rows, cols))
        assert device in ("x+", "x-", "y+", "y-")
        hops += 1
    assert hops == shortest


@pytest.mark.parametrize(("torus", "links"), [((4, 4), 4), ((1, 5), 2), ((2, 2), 2), ((1, 2), 1), ((2, 8), 3)])
def test_links_per_host(torus: tuple[int, int], links: int) -> None:
    assert links_per_host(Shape(*torus)) == links


def test_rates() -> None:
    assert rate_bytes_per_second("200mbit") == 25e6
    with pytest.raises(UserError, match="'fast' is not a link rate; write it like 200mbit"):
        rate_bytes_per_second("fast")


def left_behind(owner: int) -> list[str]:
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    etc = [path.name for path in Path("/etc/netns").glob("*")]
    return [name for name in names + etc if name.startswith(f"podium-{owner}-")]


if CAN_BUILD:
    TALK = """
import socket, sys
if sys.argv[1] == "listen":
    with socket.create_server((sys.argv[2], 5001)) as server:
        print("ready", flush=True)
        print(server.accept()[0].recv(100).decode())
else:
    socket.create_connection((sys.argv[2], 5001)).sendall(b"hello")
"""

    @pytest.mark.slow
    @pytest.mark.parametrize("torus", [(3, 3), (2, 1)])
    def test_hosts_reach_each_other_and_are_gone_afterwards(torus: tuple[int, int]) -> None:
        with torus_links(Shape(*torus), "100mbit") as hosts:
            assert left_behind(os.getpid())
            talk = [sys.executable, "-c", TALK]
            first, last = hosts[0], hosts[-1]
            with subprocess.Popen(
                [*last.command_prefix, *talk, "listen", last.address], stdout=subprocess.PIPE, text=True
            ) as listener:
                assert listener.stdout is not None
                assert listener.stdout.readline() == "ready\n"
                subprocess.run([*first.command_prefix, *talk, "call", last.address], check=True)
                assert listener.stdout.readline() == "hello\n"
        assert left_behind(os.getpid()) == []

    @pytest.mark.slow
    def test_every_setting_is_made_and_without_a_shell(monkeypatch, tmp_path) -> None:
        for tool in ("ip", "tc", "tee"):  # no sh is to be found
            (tmp_path / tool).symlink_to(shutil.which(tool))
        monkeypatch.setenv("PATH", str(tmp_path))
        with torus_links(Shape(1, 3), "100mbit") as hosts:
            for key, value in (
                links._SETTINGS | {f"conf/{name}/rp_filter": "0" for name in ("all", "x+", "x-")}
            ).items():
                read = [
                    *hosts[1].command_prefix,
                    sys.executable,
                    "-c",
                    f"print(open('/proc/sys/net/ipv4/{key}').read())",
                ]
                assert subprocess.run(read, capture_output=True, text=True, check=True).stdout.split() == value.split()

    @pytest.mark.slow
    def test_short_packets_have_a_queue_before_the_others() -> None:
        send = (
            "import socket, sys; "
            "socket.socket(type=socket.SOCK_DGRAM).sendto(bytes(int(sys.argv[2])), (sys.argv[1], 9))"
        )
        with torus_links(Shape(1, 3), "100mbit") as hosts:
            host, neighbour = hosts[0], hosts[1].address

            def sent_bytes() -> list[int]:
                """By each queue of the link to the neighbour, the first one first."""
                show = ["tc", "-n", host.command_prefix[-1], "-s", "class", "show", "dev", "x+"]
                shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
                assert re.findall(r"class htb 2:(\d) root prio (\d)", shown) == [("1", "0"), ("2", "1")]
                return [int(count) for count in re.findall(r"Sent (\d+) bytes", shown)]

            for size, queue in ((100, 0), (10_000, 1)):
                before = sent_bytes()
                subprocess.run([*host.command_prefix, sys.executable, "-c", send, neighbour, str(size)], check=True)
                assert sent_bytes()[queue] - before[queue] >= size

    @pytest.mark.slow
    def test_a_killed_owner_leaves_nothing_behind() -> None:
        script = (
            "import sys\nfrom podium.bench.links import torus_links\nfrom podium.recipe.torus import Shape\n"
            "with torus_links(Shape(1, 3), '100mbit'):\n    print('built', flush=True)\n    sys.stdin.read()"
        )
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        with subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as owner:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "built\n"
            assert left_behind(owner.pid)
            owner.send_signal(signal.SIGKILL)
            owner.stdout.read()  # ends when the guardian, which shares it, has ended
            assert left_behind(owner.pid) == []

    @pytest.mark.slow
    def test_what_a_dead_owner_left_is_removed_by_the_next_start() -> None:
        with subprocess.Popen(["true"]) as ended:
            pass
        stale = f"podium-{ended.pid}-0-0"
        subprocess.run(["ip", "netns", "add", stale], check=True)
        with torus_links(Shape(1, 2), "100mbit"):
            assert left_behind(ended.pid) == []

else:

    def test_without_root_it_says_so() -> None:
        with pytest.raises(UserError, match="need root"), torus_links(Shape(2, 2), "100mbit"):
            pass
