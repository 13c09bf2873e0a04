"""How much memory this process may still take. The machine's free memory is not all of it: a container, a service or a
job of a cluster is held to less by its cgroup, or by one above that, and is killed where it takes more.
"""

from collections.abc import Iterator
from pathlib import Path

import psutil

# Of cgroups of version 2 and 1: the limit, what is in use, and the part of that which is files, given back on demand.
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_memory_bytes(root: Path = Path("/")) -> int:
    """The least of what the machine has and what each limit leaves. `root` is where /proc and /sys are."""
    return min([psutil.virtual_memory().available, *_left_by_limits(root)])


def _left_by_limits(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, names = ("sys/fs/cgroup/memory", _V1) if controllers else ("sys/fs/cgroup", _V2)
        # A container may see its own cgroup as the top one, and of `path` nothing.
        group = root / top / path.lstrip("/")
        for above in (group, *group.parents):
            if (left := _left(above, names)) is not None:
                yield left


def _left(group: Path, names: tuple[str, str, str]) -> int | None:
    limit, used, files = names
    try:
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        left = int((group / limit).read_text()) - int((group / used).read_text()) + int(stat[files])
    except (OSError, ValueError, KeyError):  # no such group, or its limit is "max"
        return None
    return max(0, left)
