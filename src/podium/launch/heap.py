"""Memory that stays. XLA:CPU takes the buffers of a program from malloc and gives them back each time it has run; glibc
returns pieces of that size to the kernel, which hands them out again page by page, each filled with zeros. Processes
that sum gradients over sockets spend half of their time on that (docs/torus.md), so those that Podium starts keep what
they have, in large pages. An allocator other than glibc's ignores the variable.
"""

import os

_TUNABLES = {
    "glibc.malloc.mmap_max": "0",  # never a mapping of its own, which a free would end
    "glibc.malloc.trim_threshold": str(1 << 40),  # nothing goes back from the top of the heap
    "glibc.malloc.arena_max": "1",  # of several heaps, none could hold a buffer of more than 64 MB
    "glibc.malloc.hugetlb": "1",  # asks for large pages where the kernel leaves it to the program
}


def environment() -> dict[str, str]:
    """The variables of this process, for one that it starts; what the user has set of glibc's stays."""
    mine = ":".join(f"{name}={value}" for name, value in _TUNABLES.items())
    return {"GLIBC_TUNABLES": mine} | os.environ
