"""The one harness of every benchmark: the things compared take turns in one process, so that a machine's moods hit
all of them alike, and the result is a ratio with its spread.
"""

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from podium.errors import UserError


def check_rounds(rounds: int) -> None:
    if rounds < 1:
        raise UserError(f"rounds={rounds}; a benchmark needs 1 or more, for example --rounds 5")


def alternate(work: Mapping[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Items per second of each function in each round. A function does its work, waits for its end and gives the
    number of items; the first call of each is a warm-up and is not counted."""
    for run in work.values():
        run()
    rates: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            began = time.perf_counter()
            items = run()
            rates[name].append(items / (time.perf_counter() - began))
    return rates


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def ratios(rates: Mapping[str, list[float]], of: str, to: str) -> dict[str, float]:
    """`of` over `to`, round by round: neighbours in time are compared, not averages over different minutes."""
    return spread([a / b for a, b in zip(rates[of], rates[to], strict=True)])


def machine(*packages: str) -> dict[str, Any]:
    """What a result needs to be read later: processor, cores, versions, commit."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    """None where a package is there under another name, as tensorflow for tensorflow-cpu."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source that runs, whatever the working directory; an installed package has none."""
    git = ["git", "-C", str(Path(__file__).parent)]
    if subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=False).returncode:
        return None
    return subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
