"""podium launch --hosts with real keepers on addresses of loopback, each a host: some are down, one goes and comes
back. What they run is a small program in podium's place; real training, on namespaces and on Slurm, is in
tests/cluster."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time

import pytest

from podium.errors import EXIT_HUNG, EXIT_MISTAKE, EXIT_STOPPED, UserError
from podium.processes.doors import answers, watched
from podium.processes.hosts import Hosts, Patience, gather, launch_on_hosts

pytestmark = pytest.mark.slow

NAMES = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
SHELL = """#!/bin/sh
[ -e {folder}/down-$1 ] && exit 255
shift
exec "$@"
"""
PROGRAM = """
import json, os, signal, sys, time
sys.argv += json.loads(sys.stdin.readline() or sys.exit(0))
folder, processes, process = {folder!r}, int(sys.argv[sys.argv.index("--processes") + 1]), int(sys.argv[-1])
with open(f"{{folder}}/starts", "a") as file:
    file.write(f"{{process}}/{{processes}} {{' '.join(a for a in sys.argv if 'torus' in a)}}\\n")
"""


@pytest.fixture
def hosts(tmp_path):
    """Four hosts, of which `least` are enough; they run the given program."""

    def of(program="", least=3):
        shell, script = tmp_path / "shell", tmp_path / "program.py"
        shell.write_text(SHELL.format(folder=tmp_path))
        shell.chmod(0o755)
        script.write_text(PROGRAM.format(folder=str(tmp_path)) + program)
        patience = Patience(enough=60.0, first=4.0, settle=4.0, again=0.1)  # a keeper starts Python
        return Hosts(NAMES, (str(shell),), least, (sys.executable, str(script)), patience)

    return of


def starts(folder):
    return sorted((folder / "starts").read_text().splitlines())


def test_a_keeper_runs_what_it_is_told_passes_signals_on_and_kills_it_when_the_launcher_is_gone(tmp_path):
    program = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: print('heard', flush=True))\n"
    program += "import sys; print('runs', sys.stdin.readline(), end='', flush=True)\nwhile True: time.sleep(60)"
    command = [sys.executable, "-m", "podium.processes.keeper"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        port, door = map(int, keeper.stdout.readline().split())
        assert port != door
        for _ in range(200):  # more than would wait in a queue
            assert answers(("127.0.0.1", door))
        order = {"command": [sys.executable, "-S", "-c", program], "folder": str(tmp_path), "environment": {}}
        keeper.stdin.write(json.dumps(order) + "\n")
        keeper.stdin.flush()
        keeper.stdin.write('["--process", "0"]\n')
        keeper.stdin.flush()
        assert keeper.stdout.readline() == 'runs ["--process", "0"]\n'
        keeper.stdin.write("SIGTERM\n")
        keeper.stdin.flush()
        assert keeper.stdout.readline() == "heard\n"
        keeper.send_signal(signal.SIGTERM)  # as a scheduler would
        assert keeper.stdout.readline() == "heard\n"
        keeper.stdin.close()
        assert keeper.wait() == 128 + signal.SIGKILL


def test_hosts_that_are_down_are_left_out_and_the_others_keep_their_order(hosts, tmp_path):
    (tmp_path / "down-127.0.0.2").touch()
    there = gather(hosts(), print, settle_seconds=4.0)
    assert [kept.name for kept in there] == ["127.0.0.1", "127.0.0.3", "127.0.0.4"]
    for kept in there:
        kept.kill()
        assert kept.wait() == 0


def test_a_host_whose_door_no_longer_answers_is_gone_and_one_that_refuses_is_not():
    """A door whose queue is full answers nobody, as a host that is cut off."""
    with socket.create_server(("127.0.0.3", 0), backlog=0) as door:
        doors = {"there": door.getsockname(), "shut": ("127.0.0.4", 1)}  # where the kernel says that nobody listens
        with watched(doors) as gone, contextlib.ExitStack() as knocking:
            door.accept()[0].close()  # it was seen open once
            while answers(doors["there"]):
                knocker = knocking.enter_context(socket.socket())
                knocker.setblocking(False)
                knocker.connect_ex(doors["there"])
            while not gone():
                time.sleep(0.05)
            assert gone() == ["there"]


def test_where_no_host_answers_it_is_the_launcher_that_is_cut_off():
    with contextlib.ExitStack() as held:
        door = held.enter_context(socket.create_server(("127.0.0.3", 0), backlog=0))
        gone = held.enter_context(watched({"only": door.getsockname()}))
        door.accept()[0].close()
        while answers(door.getsockname()):
            knocker = held.enter_context(socket.socket())
            knocker.setblocking(False)
            knocker.connect_ex(door.getsockname())
        for _ in range(7):
            assert not answers(door.getsockname())  # which waits for a second
            assert gone() == []


def test_a_job_that_loses_a_host_continues_on_the_others_and_on_all_when_it_is_back(hosts, tmp_path):
    """Four processes: the host of one goes, and all notice. Three: it comes back, and they are told to stop. Four."""
    program = f"""
down = f"{{folder}}/down-127.0.0.3"
if processes == 4 and not os.path.exists(f"{{folder}}/lost"):
    if process == 2:
        open(down, "w").close()
        open(f"{{folder}}/lost", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    while not os.path.exists(f"{{folder}}/lost"):  # the next start is gathered as soon as one has ended
        time.sleep(0.01)
    sys.exit({EXIT_HUNG})
if processes == 3:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit({EXIT_STOPPED}))
    if process == 0:
        os.remove(down)
    while True:
        time.sleep(60)
"""
    said: list[str] = []
    assert launch_on_hosts(("train", "--run", "r"), hosts(program), restarts=1, say=said.append) == 0
    assert [line.partition(" ")[0] for line in starts(tmp_path)] == sorted(
        [f"{k}/4" for k in range(4)] * 2 + [f"{k}/3" for k in range(3)]
    )
    assert {line for line in starts(tmp_path) if "torus=auto" in line} == {f"{k}/3 torus=auto" for k in range(3)}
    assert said[0] in [f"process {k} of 4 on {NAMES[k]} ended with exit code {c}; restarting (1 of 1)"
                       for k, c in ((2, 137), (0, EXIT_HUNG), (1, EXIT_HUNG), (3, EXIT_HUNG))]  # fmt: skip
    assert said[1:] == ["training on 3 of 4 hosts; missing: 127.0.0.3", "127.0.0.3 is back; continuing"]


def test_where_three_cannot_train_a_recipe_two_do(hosts, tmp_path):
    (tmp_path / "down-127.0.0.4").touch()
    program = f"sys.exit({EXIT_MISTAKE} if processes == 3 else 0)"
    said: list[str] = []
    assert launch_on_hosts(("train",), hosts(program, least=2), restarts=0, say=said.append) == 0
    assert starts(tmp_path)[0].startswith("0/2")
    assert "3 hosts cannot train this recipe; trying fewer" in said


def test_a_mistake_on_all_hosts_is_not_tried_again(hosts, tmp_path):
    assert launch_on_hosts(("train",), hosts("sys.exit(2)"), restarts=3, say=print) == EXIT_MISTAKE
    assert len(starts(tmp_path)) == 4


def test_too_few_hosts_are_said_so_and_nothing_starts(hosts, tmp_path):
    for name in NAMES[:2]:
        (tmp_path / f"down-{name}").touch()
    few = hosts()
    few = Hosts(few.names, few.shell, 3, few.command, Patience(enough=5.0, first=4.0, settle=4.0, again=0.1))
    said: list[str] = []
    assert launch_on_hosts(("train",), few, restarts=0, say=said.append) == EXIT_HUNG
    assert said[-1] == "2 of 4 hosts are there, and 3 are needed"
    assert not (tmp_path / "starts").exists()


@pytest.mark.parametrize(("names", "least"), [(("a", "b"), 3), (("a", "b"), 0), (("a", "a"), 2)])
def test_numbers_that_cannot_be_are_refused(names, least):
    with pytest.raises(UserError, match=f"--min-processes {least} must be from 1 to the number of different --hosts"):
        launch_on_hosts(("train",), Hosts(names, (), least), restarts=0, say=print)
