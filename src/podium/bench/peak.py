"""How many floating-point operations a second this machine's cores can do at most: multiply-adds on registers, on all
cores at once, by the instructions that the native library uses.
"""

import os
from concurrent.futures import ThreadPoolExecutor

from podium.models import native

_SECONDS = 0.3


def measure_peak() -> float | None:
    """In Gflop/s, of all cores together; None without the native library."""
    if native.missing:
        return None
    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cores) as threads:
        return sum(threads.map(lambda _: native.multiply_adds_per_second(_SECONDS) * 2e-9, range(cores)))
