"""What the processes of a run exchange outside of training: small JSON values, through the key-value store of JAX's
coordinator, so processes can compare notes before any of them starts its devices. Process 0 alone reads what all have
to say and posts what follows from it, so that the traffic grows with their number and not with its square. With one
process everything here is that process's own.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax

from podium.errors import UserError
from podium.processes import connections as connections_open
from podium.processes.join import is_first, process_count, runtime

_T = TypeVar("_T")
_PATIENCE_MS = 7 * 24 * 3600 * 1000  # one may prepare a data set meanwhile; the loss of a process ends the wait
_LEAVING_SECONDS, _LOOK_SECONDS = 5.0, 0.02
_READ_PER_SECOND = 1 << 17  # values, while the first waits for the last to leave


@dataclass
class Board:
    """The store, as one process of several sees it. What is numbered must be called by all, in the same order."""

    client: Any
    process: int
    processes: int
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def post(self, place: str, value: Any) -> None:
        """Posts this process's newest `value` where all can read it; waits for nobody."""
        self.client.key_value_set(f"podium/{place}/{self.process}", json.dumps(value), allow_overwrite=True)

    def posted(self, place: str) -> dict[int, Any]:
        """Process → what it has posted last; those that have not yet are missing."""
        entries = self.client.key_value_dir_get(f"podium/{place}")
        found = {int(key.rpartition("/")[2]): json.loads(text) for key, text in entries}
        return dict(sorted(found.items()))

    def awaited(self, place: str, seconds: float) -> Any:
        """What process 0 posts at `place`, as soon as it does; None if it has not after so long. Waiting costs nothing
        on the wire."""
        try:
            return json.loads(self.client.blocking_key_value_get(f"podium/{place}/0", round(1000 * seconds)))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise

    def meet(self, value: Any = None, where: str = "met") -> str:
        """Returns when all have come, each with its `value`: the place where these are posted."""
        place = f"{where}/{next(self._numbers)}"
        if value is not None:
            self.post(place, value)
        self.client.wait_at_barrier(f"podium/{place}", _PATIENCE_MS)
        return place

    def tell(self, value: Callable[[], Any]) -> Any:
        """Process 0's `value`, which only process 0 works out."""
        place = f"told/{next(self._numbers)}"
        if self.process == 0:
            told = value()
            self.post(place, told)
            return told
        return json.loads(self.client.blocking_key_value_get(f"podium/{place}/0", _PATIENCE_MS))

    def neighbours(self, host: str) -> list[int]:
        """The processes of `host`, on which this one is. Each reads only those of its own."""
        number = next(self._numbers)
        self.post(f"hosts/{number}/{host}", True)
        self.client.wait_at_barrier(f"podium/hosts/{number}", _PATIENCE_MS)
        return list(self.posted(f"hosts/{number}/{host}"))


@functools.cache
def _board(process: int, processes: int) -> Board:
    return Board(runtime().client, process, processes)


def _ours() -> Board:
    return _board(runtime().process_id, process_count())


def collect(value: Any) -> list[Any]:
    """`value` of every process, in the order of ranks, at process 0; nothing at the others. All must call this, in the
    same order."""
    if process_count() == 1:
        return [value]
    place = _ours().meet(value)
    return list(_ours().posted(place).values()) if is_first() else []


def meet() -> None:
    """Returns when all processes have called this."""
    if process_count() > 1:
        _ours().meet()


def post(place: str, value: Any) -> None:
    """Posts this process's newest `value` where all can read it; waits for nobody."""
    if process_count() > 1:
        _ours().post(place, value)


def posted(place: str) -> dict[int, Any]:
    """Process → what it has posted last; those that have not yet are missing."""
    return _ours().posted(place) if process_count() > 1 else {}


def awaited(place: str, seconds: float) -> Any:
    """What process 0 posts at `place`, as soon as it does; None if it has not after so long."""
    return _ours().awaited(place, seconds)


def connection() -> str:
    """This process's connection to the coordinator, as process 0 sees it too."""
    return connections_open.ours(_coordinator_port()) if process_count() > 1 else ""


def connections() -> set[str]:
    """Those that are open, at process 0."""
    return connections_open.at(_coordinator_port()) if process_count() > 1 else set()


def _coordinator_port() -> int:
    return int(str(runtime().coordinator_address).rpartition(":")[2])


def on_first(act: Callable[[], Any]) -> Any:
    """Process 0 acts; all return what it returned (a JSON value), or fail as it failed."""
    outcome = _Outcome()
    told = _tell(lambda: outcome.of(act))
    outcome.raise_own()
    _raise([told])
    return told.get("value")


def everywhere(act: Callable[[], _T]) -> _T:
    """Every process acts and returns what it alone needs, of any kind. If one fails, all do."""
    return _each(act, acting=True)[0]


def once_per_host(act: Callable[[], _T]) -> _T:
    """Every process acts, but what process 0 leaves on disk is there when the others begin, and what the first of a
    host leaves there for the rest of that host. If one fails, all do."""
    process, here = runtime().process_id, _neighbours()
    turn = 0 if process == 0 else 1 if min(here) == process else 2
    (mine,) = [made for now in range(3) for made in _each(act, acting=turn == now)]
    return mine


def _each(act: Callable[[], _T], acting: bool) -> list[_T]:
    """What this process made, if it is acting. A user's mistake is reported alike by all; any other failure is raised
    as it is where it happened, and in a line by the others, who would else wait for a process that is gone."""
    made: list[_T] = []
    outcome = _Outcome()
    told = outcome.of(lambda: made.append(act())) if acting else {}
    mine = told if _FAILED & told.keys() else None  # who did well has nothing to say
    place = _ours().meet(mine) if process_count() > 1 else ""
    failed = _tell(lambda: _first_failure(_ours().posted(place) if place else {0: mine} if mine else {}))
    outcome.raise_own()
    _raise(failed)
    return made


def _first_failure(told: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    return [theirs | {"process": process} for process, theirs in told.items()][:1]


_FAILED = {"mistake", "failure"}


class _Outcome:
    """How an act went: for the others as JSON, and for this process with the exception itself."""

    failure: Exception | None = None

    def of(self, act: Callable[[], Any]) -> dict[str, Any]:
        try:
            return {"value": act()}
        except UserError as error:
            return {"mistake": str(error), "host": socket.gethostname()}
        except Exception as error:
            self.failure = error
            first_line = str(error).partition("\n")[0]
            return {"failure": f"{type(error).__name__}: {first_line}", "host": socket.gethostname()}

    def raise_own(self) -> None:
        if self.failure:
            raise self.failure


def _raise(told: Sequence[dict[str, Any]]) -> None:
    for theirs in told:
        process = theirs.get("process", 0)
        who = f"process {process} on {theirs.get('host')}"
        if "failure" in theirs:
            raise RuntimeError(f"{who} has failed: {theirs['failure']}")
        if "mistake" in theirs:
            raise UserError(theirs["mistake"] + (f" ({who})" if process else ""))


def _tell(value: Callable[[], Any]) -> Any:
    return _ours().tell(value) if process_count() > 1 else value()


def check_same(facts: dict[str, Any]) -> None:
    """Fails on all processes, naming the first that differs and in what, unless all have the same facts."""
    of_all = collect({"host": socket.gethostname(), **{name: digest(fact) for name, fact in facts.items()}})
    on_first(lambda: _check_same(list(facts), of_all))


def _check_same(names: Sequence[str], of_all: Sequence[dict[str, Any]]) -> None:
    for process, theirs in enumerate(of_all):
        for name in names:
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
            time.sleep(max(_LOOK_SECONDS, process_count() / _READ_PER_SECOND))


def processes_on_this_host() -> int:
    return len(_neighbours())


@functools.cache
def _neighbours() -> list[int]:
    return _ours().neighbours(socket.gethostname()) if process_count() > 1 else [0]


def digest(fact: Any) -> str:
    """A hash of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(fact, sort_keys=True).encode()).hexdigest()
