"""A real Slurm on one machine: munged, slurmctld and a slurmd for each of four nodes, all on loopback, with everything
they write in one folder. Needs root, Debian's slurm-wlm and munge. Node names stand in /etc/hosts while it runs; the
daemons are ended by their ids and the file is restored, also when a test fails.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

NODES = [f"podium-n{k}" for k in (1, 2, 3, 4)]
_HOSTS, _MARK = Path("/etc/hosts"), "# for podium's test of Slurm"
_LOOK_SECONDS = 0.05


def until(happens: Callable[[], Any], alive: Callable[[], bool] = lambda: True) -> Any:
    """Looks until `happens()` is true and returns it. `alive`: whether it still can."""
    while True:
        still_can = alive()
        if found := happens():
            return found
        if not still_can:
            raise AssertionError("it ended before what was waited for")
        time.sleep(_LOOK_SECONDS)


class Slurm:
    """A running cluster. Commands see it through SLURM_CONF."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "XDG_CACHE_HOME": f"{folder}/cache"}
        self.daemons: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> None:
        """Starts a daemon of the cluster."""
        with (self.folder / "daemons.log").open("a") as out:
            self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=out, stderr=out))

    def run(self, *command: str, **more: str) -> str:
        done = subprocess.run(
            command, env=self.environment | more, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def power_off(self, node: str) -> None:
        """Ends everything that runs on a node, at once: its daemon, the steps and their tasks."""
        gone = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if self._runs_on(process, node):
                    process.kill()
                    gone.append(process)
        psutil.wait_procs(gone)

    def power_on(self, node: str) -> None:
        """Starts the node's daemon, and lets Slurm use it again."""
        self.start("/usr/sbin/slurmd", "-D", "-N", node)
        self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def _runs_on(self, process: psutil.Process, node: str) -> bool:
        """A daemon says so in its arguments; what it starts, in its environment or by its parents."""
        if process.environ().get("SLURM_CONF") != self.environment["SLURM_CONF"]:
            return False
        line = process.cmdline()
        is_daemon = "slurmd" in line[0] and line[-2:] == ["-N", node]
        is_step = line[0].startswith("slurmstepd") and any(
            child.environ().get("SLURMD_NODENAME") == node for child in process.children()
        )
        return is_daemon or is_step or process.environ().get("SLURMD_NODENAME") == node

    def submit(self, script: Path, *arguments: str, **environment: str) -> "Job":
        """Jobs see `environment`, and write their logs into the cluster's folder."""
        return Job(self, self.run("sbatch", "--parsable", str(script), *arguments, **environment).strip())


class Job:
    def __init__(self, slurm: Slurm, number: str) -> None:
        self.slurm, self.number = slurm, number

    @property
    def log(self) -> str:
        file = self.slurm.folder / f"podium-{self.number}.log"
        return file.read_text() if file.exists() else ""

    def about(self) -> dict[str, str]:
        """What `scontrol show job` tells."""
        words = self.slurm.run("scontrol", "--oneliner", "show", "job", self.number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def ended(self) -> bool:
        return self.about()["JobState"] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED")

    def wait(self) -> dict[str, str]:
        """Until it has ended."""
        until(self.ended)
        return self.about()

    def wait_for(self, happens: Callable[[], Any]) -> Any:
        """Until something happens that only a running job can do."""
        return until(happens, alive=lambda: not self.ended())

    def requeued(self, times: int) -> None:
        """Waits until it was put back into the queue so often, and lets it start: Slurm would wait two minutes. Not at
        once: within the second of its end, the nodes take the new start for the old one, and refuse it."""
        self.wait_for(lambda: self.about()["JobState"] == "PENDING" and self.about()["Restarts"] == str(times))
        self.slurm.run("scontrol", "update", f"JobId={self.number}", "StartTime=now+5")

    def process(self, rank: int) -> psutil.Process:
        """The Python process of one rank."""
        return self.wait_for(lambda: find_process({"SLURM_JOB_ID": self.number, "SLURM_PROCID": str(rank)}))


def find_process(environment: dict[str, str]) -> psutil.Process | None:
    """The Python process that has this environment and trains."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            arguments = process.cmdline()
            is_python = "python" in Path(process.exe()).name  # its name is podium, the script's
            if is_python and "train" in arguments and environment.items() <= process.environ().items():
                return process
    return None


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Slurm]:
    with contextlib.ExitStack() as stack:
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that all is torn down then too
        stack.callback(signal.signal, signal.SIGTERM, before)
        stack.enter_context(_names())
        slurm = Slurm(folder)
        stack.callback(_end_all_of, slurm)
        _configure(folder)

        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "key-file": "key", "seed-file": "seed"}
        options = [f"--{option}={folder}/munge.{name}" for option, name in files.items()]
        # --force: the socket may lie in a folder that only root can enter, and all that use it are root's.
        slurm.start("/usr/sbin/munged", "--foreground", "--force", *options)

        def all_run() -> bool:
            return all(process.poll() is None for process in slurm.daemons)

        until((folder / "munge.socket").exists, all_run)
        slurm.start("/usr/sbin/slurmctld", "-D")
        for node in NODES:
            slurm.start("/usr/sbin/slurmd", "-D", "-N", node)

        def is_up() -> bool:
            done = subprocess.run(
                ["sinfo", "--noheader", "--format=%t %D"], env=slurm.environment, capture_output=True, text=True
            )
            return done.stdout.split() == ["idle", str(len(NODES))]

        until(is_up, all_run)
        yield slurm


def _configure(folder: Path) -> None:
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    folder.chmod(0o755)
    host, (controller, *ports) = socket.gethostname(), _free_ports(1 + len(NODES))
    lines = {
        "ClusterName": "podium", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmctldPort": controller,
        "SlurmUser": "root", "AuthType": "auth/munge", "AuthInfo": f"socket={folder}/munge.socket",
        "StateSaveLocation": folder / "state", "SlurmdSpoolDir": f"{folder}/spool-%n",
        "SlurmctldPidFile": folder / "slurmctld.pid", "SlurmdPidFile": f"{folder}/slurmd-%n.pid",
        "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "MpiDefault": "none",
        "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_Core", "ReturnToService": 2,
        "SlurmdTimeout": 3600, "SlurmctldTimeout": 3600, "KillWait": 2,
    }  # fmt: skip
    text = [f"{key}={value}" for key, value in lines.items()]
    text += [
        f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=1"
        for node, port in zip(NODES, ports, strict=True)
    ]
    text.append(f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP")
    (folder / "slurm.conf").write_text("\n".join(text) + "\n")
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


@contextlib.contextmanager
def _names() -> Iterator[None]:
    """The nodes' names, marked, so that what a killed test left behind goes with the next. Written in place: in a
    container the file may be a mount."""

    def without_ours() -> str:
        return "".join(line for line in _HOSTS.read_text().splitlines(keepends=True) if _MARK not in line)

    _HOSTS.write_text(f"{without_ours()}127.0.0.1 {' '.join(NODES)} {_MARK}\n")
    try:
        yield
    finally:
        _HOSTS.write_text(without_ours())


def _end_all_of(slurm: Slurm) -> None:
    """Ends the daemons, their steps and what runs in them: whatever was given this cluster's configuration."""
    ours = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("SLURM_CONF") == slurm.environment["SLURM_CONF"]:
                process.kill()
                ours.append(process)
    psutil.wait_procs(ours)
    for daemon in slurm.daemons:
        daemon.wait()


def missing() -> str:
    """Why there can be no Slurm here; empty if there can."""
    if os.geteuid():
        return "a Slurm of one's own needs root"
    absent = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if not shutil.which(name)]
    return f"{', '.join(absent)} not installed; make test-cluster installs them" if absent else ""
