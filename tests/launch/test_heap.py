"""A process that computes on its CPU keeps its memory: what was freed is used again without the kernel's help."""

import json
import platform
import subprocess
import sys

# Three times 256 MB from malloc, touched and freed, and the page faults of each; other threads' memory too.
PROGRAM = """
import json, resource, threading
import numpy as np
from podium.launch import heap
kept = heap.keep()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(1 << 28, np.uint8)[::4096] = 1
    counted.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
counted = []
for _ in range(3):
    thread = threading.Thread(target=faults)
    thread.start()
    thread.join()
print(json.dumps({"kept": kept, "faults": counted}))
"""


def test_memory_is_taken_from_the_kernel_once():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    told = json.loads(ended.stdout)
    assert told["kept"] == (platform.libc_ver()[0] == "glibc")
    first, *later = told["faults"]
    assert first > 50  # 256 MB in large pages are 128
    assert max(later) < first / 10 or not told["kept"]
