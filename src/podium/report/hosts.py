"""Finds the straggler: the host that holds up the others. All processes end a step when the slowest does, so the clock
alone names nobody; what differs is how long a process's own devices stood idle for its own input. A device that
computes slowly cannot be seen from here: `podium doctor` times each before a launch.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from podium.report.events import Hosts

_NOTABLE = 1.2
_MEMORY_LOW = 0.05  # of the host's; below it the kernel may soon end the process


@dataclass(frozen=True)
class ProcessTimes:
    """What one process measured of itself since its last report; seconds are per step."""

    host: str
    step_seconds: float
    input_wait_seconds: float
    memory_bytes: int
    memory_free_share: float
    """How much of the host's memory is free."""


def compare(step: int, times: Mapping[int, ProcessTimes]) -> Hosts:
    """All processes side by side, as process 0 reports them. `times` has at least one."""
    step_seconds = statistics.median(t.step_seconds for t in times.values())
    waits = {process: t.input_wait_seconds for process, t in times.items()}
    straggler = max(waits, key=lambda process: waits[process])
    others = [wait for process, wait in waits.items() if process != straggler] or [waits[straggler]]
    # Without what it waited longer than the others, all would have ended the step so much earlier.
    without = max(step_seconds - (waits[straggler] - statistics.median(others)), step_seconds / 100)
    slower = step_seconds / without if step_seconds else 1.0
    fullest = min(times, key=lambda process: times[process].memory_free_share)
    free = times[fullest].memory_free_share
    warning = ""
    if slower >= _NOTABLE:
        warning = f"process {straggler} on {times[straggler].host} is {slower:.1f}× slower: input"
    elif free < _MEMORY_LOW:
        warning = f"process {fullest} on {times[fullest].host} has {free:.0%} of its host's memory left"
    return Hosts(
        step=step,
        processes=len(times),
        step_seconds=step_seconds,
        input_wait_seconds=statistics.median(waits.values()),
        input_wait_seconds_most=waits[straggler],
        input_wait_most_process=straggler,
        memory_bytes_most=max(t.memory_bytes for t in times.values()),
        memory_free_share_least=free,
        warning=warning,
    )
