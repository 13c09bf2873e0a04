"""What the processes of a run exchange outside of training: small JSON values, gathered in the order of ranks. They
travel through the key-value store of JAX's coordinator, so processes can compare notes before any of them starts
its devices. With one process everything here is that process's own.
"""

import contextlib
import hashlib
import itertools
import json
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from podium.errors import UserError
from podium.processes.join import is_first, process_count, runtime

_T = TypeVar("_T")
_gathering = itertools.count()
_PATIENCE_MS = 7 * 24 * 3600 * 1000  # one may prepare a data set meanwhile; the loss of a process ends the wait
_LEAVING_SECONDS, _LOOK_SECONDS = 5.0, 0.02


def gather(value: Any) -> list[Any]:
    """`value` of every process. All must call this, in the same order."""
    if process_count() == 1:
        return [value]
    place = f"podium/gathered/{next(_gathering)}"
    _put(place, value)
    _store().wait_at_barrier(place, _PATIENCE_MS)
    return list(_all(place).values())


def post(board: str, value: Any) -> None:
    """Posts this process's newest `value` on a board that all can read; waits for nobody."""
    if process_count() > 1:
        _put(f"podium/{board}", value)


def posted(board: str) -> dict[int, Any]:
    """Process → what it has posted last; those that have not yet are missing."""
    return _all(f"podium/{board}") if process_count() > 1 else {}


def _put(place: str, value: Any) -> None:
    _store().key_value_set(f"{place}/{runtime().process_id}", json.dumps(value), allow_overwrite=True)


def _store() -> Any:
    return runtime().client


def _all(place: str) -> dict[int, Any]:
    found = {int(key.rpartition("/")[2]): json.loads(text) for key, text in _store().key_value_dir_get(place)}
    return dict(sorted(found.items()))


def on_first(act: Callable[[], Any]) -> Any:
    """Process 0 acts; all return what it returned (a JSON value), or fail as it failed."""
    return _together(act, acting=is_first())[0]


def everywhere(act: Callable[[], _T]) -> _T:
    """Every process acts and returns what it alone needs, of any kind. If one fails, all do."""
    mine: list[_T] = []
    _together(lambda: mine.append(act()), acting=True)
    return mine[0]


def once_per_host(act: Callable[[], Any]) -> Any:
    """Every process acts (and returns its own JSON value), but what process 0 leaves on disk is there when the others
    begin, and what the first of a host leaves there for the rest of that host. If one fails, all do."""
    hosts, process = gather(socket.gethostname()), runtime().process_id
    turn = 0 if process == 0 else 1 if hosts.index(hosts[process]) == process else 2
    return [_together(act, acting=turn == now)[process] for now in range(3)][turn]


def _together(act: Callable[[], Any], acting: bool) -> list[Any]:
    """What each process that is acting returned. A user's mistake is reported alike by all; any other failure is
    raised as it is where it happened, and in a line by the others, who would else wait for a process that is gone."""
    returned: dict[str, Any] = {}
    failure = None
    if acting:
        try:
            returned = {"value": act()}
        except UserError as error:
            returned = {"mistake": str(error)}
        except Exception as error:
            first_line = str(error).partition("\n")[0]
            failure, returned = error, {"failure": f"{type(error).__name__}: {first_line}"}
    of_all = gather(returned | {"host": socket.gethostname()})
    if failure:
        raise failure
    for process, theirs in enumerate(of_all):
        who = f"process {process} on {theirs['host']}"
        if "failure" in theirs:
            raise RuntimeError(f"{who} has failed: {theirs['failure']}")
        if "mistake" in theirs:
            raise UserError(theirs["mistake"] + (f" ({who})" if process else ""))
    return [theirs.get("value") for theirs in of_all]


def check_same(facts: dict[str, Any]) -> None:
    """Fails on all processes, naming the first that differs and in what, unless all have the same facts."""
    of_all = gather({"host": socket.gethostname(), **{name: digest(fact) for name, fact in facts.items()}})
    for process, theirs in enumerate(of_all):
        for name in facts:
            if theirs[name] != of_all[0][name]:
                raise UserError(
                    f"process {process} on {theirs['host']} has a different {name} from process 0 on "
                    f"{of_all[0]['host']}; start all processes with the same {name}"
                )


def leave() -> None:
    """Call this before the process ends while others may not have heard why. Process 0 takes the coordinator with
    it, and JAX would abort them in the middle of a word: it waits until they have left, though not for long."""
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # the coordinator is gone already
        post("left", True)
        deadline = time.monotonic() + _LEAVING_SECONDS
        while is_first() and len(posted("left")) < process_count() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)


def processes_on_this_host() -> int:
    hosts = gather(socket.gethostname())
    return hosts.count(hosts[runtime().process_id])


def digest(fact: Any) -> str:
    """A hash of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(fact, sort_keys=True).encode()).hexdigest()
