"""A disk that is full, as far as this process can tell."""

import contextlib
import resource


@contextlib.contextmanager
def full_disk(size_bytes=0):
    """No file may grow past a size: the kernel refuses the write as on a full disk, but for its words, "File too
    large"."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
