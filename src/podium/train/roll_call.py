"""Finds the process that is gone. Each posts a sign of life on JAX's key-value store, which process 0 keeps; process 0
alone reads them all, judges, and posts one verdict, for which a thread of every other process waits. Who gets no answer
from the store, or sees process 0 judge no longer, knows that it is process 0 itself. A process that is killed leaves
sooner: its kernel closes its connection to the coordinator, which process 0 looks up without asking anybody.

So a sign costs each process one small message, however many there are, and signs are further apart in larger jobs: some
1,000 messages a second reach process 0 from up to 6,500 processes, and 2,500 from 16,384. The store is asked in threads
of their own, as its calls have no deadline: while process 0 is frozen they wait for ever.

Time is counted in looks, so a machine that was suspended does not look like a process that is gone.
"""

import math
import os
import socket
import threading
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax

from podium.processes import agree

_LOST_SECONDS = 10.0  # who has not been heard of for so long is gone …
_BROKEN_SECONDS = 4.0  # … or for so long, once a collective has failed at another …
_LOST_SIGNS = 2  # … but never for fewer signs than these that did not come
_MESSAGES_PER_SECOND = 1024  # of all; each is some 800 bytes on the wire, most of them gRPC's
_SIGN_SECONDS_MOST = 8.0  # however many there are: a loss is to be named within 30 s
_SIGNS_PER_READING = 4  # of what process 0 says of itself
_ANSWERS_PER_SECOND = 2048
_LEAVING_SECONDS = 2.0
_PATIENCE_SECONDS = 60.0  # then the verdict is asked for again
_NAMED_MOST = 3


class Store(Protocol):
    """Where processes post; `podium.processes.agree` is one."""

    def post(self, place: str, value: Any, /) -> None: ...
    def posted(self, place: str, /) -> dict[int, Any]: ...
    def awaited(self, place: str, seconds: float, /) -> Any: ...
    def connection(self) -> str: ...
    def connections(self) -> set[str]: ...


@dataclass(frozen=True)
class Sign:
    """What one process last posted, and for how many looks it has been the same."""

    who: str
    where: str
    moves: int
    beat: int
    connection: str = ""
    """Its connection to the coordinator; empty where it is not known, or about to be closed."""
    broken: bool = False
    """Whether it has failed where it needs the others, and waits to hear which of them is gone."""
    looks: int = 0

    def __str__(self) -> str:
        return f"({self.who}, {self.where})"


class RollCall:
    """One process's part of it. `look` is called once every `look_seconds`. All processes give it the same `name`,
    which no other has had."""

    def __init__(
        self, process: int, processes: int, *, look_seconds: float, name: str = "watch", store: Store = agree
    ) -> None:
        self._process, self._store = process, store
        self._signs_at, self._first_at, self._verdict_at = (f"{name}/{what}" for what in ("signs", "first", "verdict"))
        messages_per_sign = 1 + 1 / _SIGNS_PER_READING
        sign_seconds = min(processes * messages_per_sign / _MESSAGES_PER_SECOND, _SIGN_SECONDS_MOST)
        sign_looks = max(1, math.ceil(sign_seconds / look_seconds))
        sign_seconds = sign_looks * look_seconds
        self._looks_between = sign_looks if process else max(1, sign_looks // 2)
        self.lost_seconds = max(_LOST_SECONDS, _LOST_SIGNS * sign_seconds)
        self._lost_looks = round(self.lost_seconds / look_seconds)
        self._broken_looks = round(max(_BROKEN_SECONDS, _LOST_SIGNS * sign_seconds) / look_seconds)
        self.verdict_seconds = 1.0 + processes / _ANSWERS_PER_SECOND
        """After so long all have heard a verdict."""
        self._who = f"{socket.gethostname()}, pid {os.getpid()}"
        self._looks, self._unanswered, self._beats = 0, 0, 0
        # All begin within moments of each other, so who never posts is gone too; but a start has more patience.
        never = Sign("not heard of yet", "starting", 0, -1, looks=-2 * self._lost_looks)
        self._signs: dict[int, Sign] = dict.fromkeys(range(processes), never) if process == 0 else {}
        self._first = Sign("", "", 0, -1)
        self._connection: str | None = None  # looked up by the thread that talks
        self._seen: set[str] = set()
        self._verdict: str | None = None
        self.heard = threading.Event()
        """Set when process 0's verdict has come, or there will be none."""
        self.late: str | None = None
        """Which processes the others wait for, if any are behind, in words."""
        self.broken = False
        """To be set when this process has failed where it needs the others: who is gone is then told sooner."""
        self._idle, self._asked = threading.Event(), threading.Event()
        self._idle.set()
        self._where, self._moves = "", 0
        threading.Thread(target=self._talk, name="podium-roll-call", daemon=True).start()
        if process:
            threading.Thread(target=self._listen, name="podium-verdict", daemon=True).start()

    def look(self, where: str, moves: int) -> str | None:
        """Why this process must end, if it must. Waits for nobody."""
        self._where, self._moves = where, moves
        self._looks += 1
        if not self._idle.is_set():
            self._unanswered += 1
            if self._unanswered >= self._lost_looks:
                who = f"process 0{self._named_first()}, the coordinator"
                return f"{who}, has not answered for {self.lost_seconds:.0f} s"
        elif self._looks % self._looks_between == 0:
            self._unanswered = 0
            self._idle.clear()
            self._asked.set()
        return self._verdict

    def exchange(self) -> None:
        """Process 0 judges; each other posts a sign, and after some signs reads what process 0 says of itself."""
        self._beats += 1
        if self._connection is None:
            self._connection = self._store.connection()
        sign = Sign(self._who, self._where, self._moves, self._beats, self._connection, self.broken)
        if self._process == 0:
            self._judge(sign)
            return
        self._store.post(self._signs_at, _told(sign))
        if self._beats % _SIGNS_PER_READING == 0:
            self._read_first()

    def over(self) -> None:
        """Process 0 lets the others wait for a verdict no longer; they say that their connections may close."""
        if self._process == 0:
            if not self._verdict:
                self._store.post(self._verdict_at, "")
            return
        if self._idle.wait(_LEAVING_SECONDS):  # the sign before this one is no longer on its way
            self._connection = ""
            self._idle.clear()
            self._asked.set()
            self._idle.wait(_LEAVING_SECONDS)

    def _judge(self, mine: Sign) -> None:
        open_now = self._store.connections()  # before the signs: who closes one has said so
        posted = {process: Sign(*sign) for process, sign in self._store.posted(self._signs_at).items()}
        self._signs = heard(self._signs, {**posted, 0: mine}, looks=self._looks_between)
        broken = any(sign.broken for sign in self._signs.values())
        looks, self.late = self._broken_looks if broken else self._lost_looks, behind(self._signs)
        named = {sign.connection for sign in self._signs.values()} - {""}
        self._seen |= named & open_now
        verdict = closed(self._signs, self._seen - open_now)
        verdict = verdict or lost(self._signs, looks, self.lost_seconds * looks / self._lost_looks)
        if verdict:
            self._store.post(self._verdict_at, verdict)
        self._store.post(self._first_at, {"who": self._who, "beat": self._beats, "late": self.late})
        self._verdict = verdict  # only now: this process ends with it, and the store with this process

    def _read_first(self) -> None:
        posted = self._store.posted(self._first_at).get(0)
        if posted is None:  # process 0 has not judged yet
            return
        same = self._first.beat == posted["beat"]
        looks = self._first.looks + _SIGNS_PER_READING * self._looks_between if same else 0
        self._first = Sign(posted["who"], "the coordinator", 0, posted["beat"], looks=looks)
        self.late = posted["late"]
        if looks >= self._lost_looks and not self._verdict:
            self._verdict = f"process 0 {self._first} is gone: not heard of for {self.lost_seconds:.0f} s"

    def _talk(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            try:
                self.exchange()
            except jax.errors.JaxRuntimeError as error:
                reason = str(error).splitlines()[0]
                self._verdict = f"process 0{self._named_first()}, the coordinator, is gone ({reason})"
            self._idle.set()

    def _listen(self) -> None:
        try:
            while (verdict := self._store.awaited(self._verdict_at, _PATIENCE_SECONDS)) is None:
                continue
        except jax.errors.JaxRuntimeError:  # process 0 is gone, which the other thread tells
            return
        self._verdict = verdict or self._verdict
        self.heard.set()

    def _named_first(self) -> str:
        return f" ({self._first.who})" if self._first.who else ""


def _told(sign: Sign) -> list[Any]:
    """As short as it can be: of all that is sent, signs are the most."""
    return [sign.who, sign.where, sign.moves, sign.beat, sign.connection, *([True] if sign.broken else [])]


def heard(before: Mapping[int, Sign], posted: Mapping[int, Sign], looks: int) -> dict[int, Sign]:
    """Each process's newest sign, from what all have posted; one that is the same as `looks` ago grows older."""
    signs = {process: replace(sign, looks=sign.looks + looks) for process, sign in before.items()}
    fresh = {k: sign for k, sign in posted.items() if k not in before or before[k].beat != sign.beat}
    return signs | fresh


def closed(signs: Mapping[int, Sign], connections: Set[str]) -> str | None:
    """The processes whose connections to the coordinator are closed, if any are, in words."""
    gone = [f"process {process} {sign}" for process, sign in signs.items() if sign.connection in connections]
    return f"{_gone(gone)}: {'its' if len(gone) == 1 else 'their'} connection to process 0 is closed" if gone else None


def lost(signs: Mapping[int, Sign], lost_looks: int, lost_seconds: float) -> str | None:
    """The processes that are gone, if any are, in words."""
    gone = [f"process {process} {sign}" for process, sign in signs.items() if sign.looks >= lost_looks]
    return f"{_gone(gone)}: not heard of for {lost_seconds:.0f} s" if gone else None


def behind(signs: Mapping[int, Sign]) -> str | None:
    """The processes that the others wait for, if any are behind, in words."""
    furthest = max(signs.values(), key=lambda sign: sign.moves, default=None)
    late = [f"process {process} {sign}" for process, sign in signs.items() if furthest and sign.moves < furthest.moves]
    return f"{_listed(late)} did not reach where the others are: {furthest.where}" if furthest and late else None


def _gone(names: list[str]) -> str:
    return f"{_listed(names)} {'is' if len(names) == 1 else 'are'} gone"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MOST} more" if len(names) > _NAMED_MOST else ""
    return " and ".join(names[:_NAMED_MOST]) + more
