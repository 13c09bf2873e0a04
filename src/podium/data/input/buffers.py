"""Memory of batches on their way to a device. An array made here may become a device's buffer without a copy (XLA:CPU
does so where the address is a multiple of 64), and how long the device needs it only JAX knows. So nobody gives memory
back: it is used again when the last view of its array is gone, JAX's own included. Fresh memory for every batch would
cost 5 % of the decoder's time: the kernel clears its pages.
"""

import math
import mmap
import weakref

import numpy as np
from numpy.typing import DTypeLike


class BatchMemory:
    """Gives out arrays, to one thread; holds as much memory as was in use at once."""

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {}

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """An array of arbitrary content that begins at a page."""
        array_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        free = self._free.setdefault(array_bytes, [])
        memory = free.pop() if free else mmap.mmap(-1, array_bytes)
        # Every view refers to `whole`: NumPy skips to a view's first base that is an array, and a mapping is none.
        whole = np.frombuffer(memory, dtype)
        weakref.finalize(whole, free.append, memory).atexit = False
        return whole.reshape(shape)
