"""Processes that Podium starts keep their memory: what was freed is used again without the kernel's help."""

import json
import subprocess
import sys

import pytest

from podium.launch import heap

# Three times 256 MB from malloc, touched and freed, and the page faults of each.
PROGRAM = """
import json, resource
import numpy as np
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(1 << 28, np.uint8)[::4096] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(json.dumps([faults() for _ in range(3)]))
"""


def page_faults(environment):
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_memory_is_taken_from_the_kernel_once():
    first, *later = page_faults(heap.environment())
    assert first > 50  # 256 MB in large pages are 128
    assert max(later) < first / 10


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")
    assert heap.environment()["GLIBC_TUNABLES"] == "glibc.malloc.arena_max=2"
