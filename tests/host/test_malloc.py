"""A process that computes on its CPU keeps its memory: what was freed is used again without the kernel's help."""

import json
import platform
import subprocess
import sys

import pytest

from podium.host.accelerators import accelerator_files

pytestmark = pytest.mark.slow

# Three times 256 MB from malloc, touched and freed, and the page faults of each; other threads' memory too.
PROGRAM = """
import json, resource, threading
import numpy as np
from podium.host import malloc
kept = malloc.keep()
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


COMMAND = """
import ctypes, sys
from podium.cli.main import main
try:
    main()
except SystemExit:
    pass
import jax
jax.devices()  # starts a dozen threads
libc = ctypes.CDLL(None)
if not hasattr(libc, "malloc_info"):
    sys.exit()
libc.fopen.restype, libc.fclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
out = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, out)
libc.fclose(out)
"""


@pytest.mark.parametrize(
    ("command", "computes"),
    [
        (["train", "--recipe", "no-such-recipe"], True),
        (["eval", "no-such-run"], True),
        (["prepare", "no-such-images", "out"], False),
    ],
)
def test_a_command_that_computes_has_one_heap_whatever_threads_its_libraries_start(command, computes):
    mistaken = [sys.executable, "-c", COMMAND, *command]
    told = subprocess.run(mistaken, capture_output=True, text=True, check=True).stdout
    keeps = computes and platform.libc_ver()[0] == "glibc" and not accelerator_files()
    assert (told.count("<heap nr=") == 1) == keeps
