"""Whether hosts are still there, by a port of each that stays open (`keeper`). So `podium launch --hosts` knows of a
host that has lost its network or its power before the processes of the job are sure of it.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

Door = tuple[str, int]
_LOOK_SECONDS = 1.0  # between two looks, and for an answer …
_LOOKS = 3  # … of which so many in a row had none when a host is gone


@contextlib.contextmanager
def watched(doors: Mapping[str, Door]) -> Iterator[Callable[[], list[str]]]:
    """Tells which hosts are gone, while its `with` lasts. One whose door was never reached, behind a firewall perhaps,
    is not missed: that is left to the processes themselves. Where no host answers, it is this one that is cut off."""
    missed: dict[str, int] = {}  # looks in a row, once a door was seen open
    over = threading.Event()

    def look(name: str) -> None:
        while not over.wait(_LOOK_SECONDS):
            if answers(doors[name]):
                missed[name] = 0
            elif name in missed:
                missed[name] += 1

    def gone() -> list[str]:
        return [name for name in doors if missed.get(name, 0) >= _LOOKS] if 0 in missed.values() else []

    for name in doors:
        threading.Thread(target=look, args=(name,), name=f"podium-door-{name}", daemon=True).start()
    try:
        yield gone
    finally:
        over.set()


def answers(door: Door) -> bool:
    try:
        socket.create_connection(door, _LOOK_SECONDS).close()
    except ConnectionRefusedError:  # by the host, whose keeper has ended
        return True
    except OSError:
        return False
    return True
