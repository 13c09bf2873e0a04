"""What may happen to a run beside SIGKILL. Each disturbance starts or continues the run, does its harm at a random
moment, and leaves a run that has ended; False means that it came to its end before.

A jump of the clock is one of Python's, not of the machine's, which other programs need.
"""

import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

from podium.bench.small_run import SmallRun
from podium.errors import EXIT_MISTAKE, EXIT_STOPPED
from podium.train.checkpoint_files import complete_steps

Disturbance = Callable[[SmallRun, str], bool]

_FROZEN_SECONDS = 3.0
_DAY_SECONDS = 86400.0
_JUMPING = """
import os, time
_time, _from = time.time, time.monotonic() + float(os.environ["PODIUM_CHAOS_AFTER"])
time.time = lambda: _time() + (float(os.environ["PODIUM_CHAOS_JUMP"]) if time.monotonic() > _from else 0.0)
"""


def killed(run: SmallRun, name: str) -> bool:
    training = run.start(name)
    return run.at_a_moment(name, training, lambda: None) and run.killed(name, training)


def stopped(run: SmallRun, name: str) -> bool:
    """Saves and ends, as before the end of a job's time."""
    training = run.start(name)
    if not run.at_a_moment(name, training, lambda: training.process.send_signal(signal.SIGTERM)):
        return False
    run.check(training, EXIT_STOPPED)
    return True


def frozen(run: SmallRun, name: str) -> bool:
    """Stands still for a while, as a machine that was suspended; goes on, and is killed."""

    def freeze() -> None:
        training.process.send_signal(signal.SIGSTOP)
        time.sleep(run.rng.uniform(0, _FROZEN_SECONDS))
        training.process.send_signal(signal.SIGCONT)

    training = run.start(name)
    if not run.at_a_moment(name, training, freeze):
        return False
    return run.at_a_moment(name, training, lambda: None) and run.killed(name, training)


def on_a_full_disk(run: SmallRun, name: str) -> bool:
    """From a random moment on no file may grow. The run must say so in a line and keep what it has."""
    training = run.start(name)

    def fill() -> None:
        resource.prlimit(training.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    if not run.at_a_moment(name, training, fill):
        return False
    run.check(training, EXIT_MISTAKE)
    if training.process.returncode and "could not be written" not in training.last_line():
        raise RuntimeError(f"a full disk is told as: {training.last_line()}")
    return True


def with_a_corrupt_checkpoint(run: SmallRun, name: str) -> bool:
    """Is killed, and a bit of its newest checkpoint flips, if there is one before that to go back to."""
    if not killed(run, name):
        return False
    checkpoints = run.path(name) / "checkpoints"
    steps = complete_steps(checkpoints)
    if len(steps) > 1:
        flip(run.rng.choice(sorted(f for f in (checkpoints / str(steps[-1])).rglob("*") if _counts(f))), run)
    return True


def _counts(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0 and "commit" not in file.name  # nobody reads those of Orbax


def flip(file: Path, run: SmallRun) -> None:
    content = bytearray(file.read_bytes())
    content[run.rng.randrange(len(content))] ^= 1 << run.rng.randrange(8)
    file.write_bytes(content)


def with_a_jumping_clock(run: SmallRun, name: str) -> bool:
    """The time of day jumps by up to a day, forward or back, while it trains; then it is killed."""
    site = run.folder / "jumping"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_JUMPING)
    jump, after = run.rng.uniform(-_DAY_SECONDS, _DAY_SECONDS), run.rng.uniform(0, 10)
    training = run.start(name, PYTHONPATH=str(site), PODIUM_CHAOS_JUMP=str(jump), PODIUM_CHAOS_AFTER=str(after))
    return run.at_a_moment(name, training, lambda: None) and run.killed(name, training)


DISTURBANCES: dict[str, Disturbance] = {
    "SIGKILL": killed,
    "SIGSTOP": frozen,
    "SIGTERM": stopped,
    "full disk": on_a_full_disk,
    "corrupt checkpoint": with_a_corrupt_checkpoint,
    "clock jump": with_a_jumping_clock,
}
