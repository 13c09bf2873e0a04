"""Memory that stays. XLA:CPU takes the buffers of a program from malloc and gives them back each time it has run; glibc
returns pieces of that size to the kernel, which hands them out again page by page, each filled with zeros. Seen on the
step of recipe `cifar10-sgd`: a sixth of the processor's time. Where the CPU computes, the process keeps what it has.
"""

import ctypes
import functools

# From malloc.h and mman.h of Linux.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_MADV_HUGEPAGE = 14
_PAGE_BYTES = 1 << 12
_LARGE_PAGES_BYTES = 4 << 30  # of addresses; memory is taken as it is first written to


@functools.cache
def keep() -> bool:
    """From now on freed memory is used again instead of given back, and comes in large pages; False where malloc is not
    glibc's. To be called when the process computes on its CPU, and early: threads that start afterwards share one heap,
    those that have one of their own by then go on to give memory back."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "gnu_get_libc_version"):
        return False
    libc.mallopt(_M_ARENA_MAX, 1)  # of several heaps, none could hold a buffer of more than 64 MB
    libc.mallopt(_M_MMAP_MAX, 0)  # no mappings of their own, which a free would end
    libc.mallopt(_M_TRIM_THRESHOLD, -1)  # nothing goes back from the end of the heap
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if heap := libc.malloc(_LARGE_PAGES_BYTES):
        libc.madvise(-(-heap // _PAGE_BYTES) * _PAGE_BYTES, _LARGE_PAGES_BYTES - _PAGE_BYTES, _MADV_HUGEPAGE)
        libc.free(heap)
    return True
