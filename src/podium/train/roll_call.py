"""Finds the process that is gone. Each posts a sign of life on JAX's key-value store, which process 0 keeps; process 0
alone reads them all, judges, and posts one verdict that the others read. Who gets no answer from the store, or sees no
new verdict, knows that it is process 0 itself.

So a look costs each process one small message, however many there are, and looks are further apart in larger jobs:
1,000 to 2,000 messages a second reach process 0 at any size. The store is asked in a thread of its own, as its calls
have no deadline: while process 0 is frozen they wait for ever.

Time is counted in looks, so a machine that was suspended does not look like a process that is gone.
"""

import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax

from podium.processes import agree

_LOST_SECONDS = 10.0  # who has not been heard of for so long is gone …
_LOST_SIGNS = 3  # … but never for fewer signs than these that did not come
_MESSAGES_PER_SECOND = 2048
_NAMED_MOST = 3
_SIGNS, _VERDICT = "at", "verdict"


@dataclass(frozen=True)
class Sign:
    """What one process last posted, and for how many looks it has been the same."""

    who: str
    where: str
    moves: int
    beat: int
    looks: int = 0

    def __str__(self) -> str:
        return f"({self.who}, {self.where})"


class RollCall:
    """One process's part of it. `look` is called once every `look_seconds`."""

    def __init__(
        self,
        process: int,
        processes: int,
        *,
        look_seconds: float,
        post: Callable[[str, Any], None] = agree.post,
        posted: Callable[[str], dict[int, Any]] = agree.posted,
    ) -> None:
        self._process, self._post, self._posted = process, post, posted
        self._seconds_between = max(look_seconds, processes / _MESSAGES_PER_SECOND)
        self._looks_between = max(1, round(self._seconds_between / look_seconds))
        sign_seconds = 2 * self._looks_between * look_seconds  # every other message is a sign
        self.lost_seconds = max(_LOST_SECONDS, _LOST_SIGNS * sign_seconds)
        self.verdict_seconds = sign_seconds + look_seconds
        """After so long all have read a verdict."""
        self._lost_looks = round(self.lost_seconds / look_seconds)
        self._who = f"{socket.gethostname()}, pid {os.getpid()}"
        self._looks, self._unanswered, self._beats = 0, 0, 0
        # All begin within moments of each other, so who never posts is gone too; but a start has more patience.
        never = Sign("not heard of yet", "starting", 0, -1, looks=-2 * self._lost_looks)
        self._signs: dict[int, Sign] = dict.fromkeys(range(processes), never) if process == 0 else {}
        self._first = Sign("", "", 0, -1)
        self._verdict: str | None = None
        self.late: str | None = None
        """Which processes the others wait for, if any are behind, in words."""
        self._idle, self._asked = threading.Event(), threading.Event()
        self._idle.set()
        self._where, self._moves = "", 0
        threading.Thread(target=self._talk, name="podium-roll-call", daemon=True).start()

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
        """One message, and what follows from the answer: by turns a sign of life, and the verdict."""
        self._beats += 1
        if self._beats % 2:
            sign = {"who": self._who, "where": self._where, "moves": self._moves, "beat": self._beats}
            self._post(_SIGNS, sign)
        elif self._process == 0:
            self._judge()
        else:
            self._obey()

    def _judge(self) -> None:
        self._signs = heard(self._signs, self._posted(_SIGNS), looks=2 * self._looks_between)
        verdict, self.late = lost(self._signs, self._lost_looks, self.lost_seconds), behind(self._signs)
        self._post(_VERDICT, {"who": self._who, "beat": self._beats, "end": verdict, "late": self.late})
        self._verdict = verdict  # only now: this process ends with it, and the store with this process

    def _obey(self) -> None:
        posted = self._posted(_VERDICT).get(0)
        if posted is None:  # process 0 has not judged yet
            return
        same = self._first.beat == posted["beat"]
        looks = self._first.looks + 2 * self._looks_between if same else 0
        self._first = Sign(posted["who"], "the coordinator", 0, posted["beat"], looks)
        self.late, self._verdict = posted["late"], posted["end"]
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

    def _named_first(self) -> str:
        return f" ({self._first.who})" if self._first.who else ""


def heard(before: Mapping[int, Sign], posted: Mapping[int, Mapping[str, Any]], looks: int) -> dict[int, Sign]:
    """Each process's newest sign, from what all have posted; one that is the same as `looks` ago grows older."""
    signs = {process: replace(sign, looks=sign.looks + looks) for process, sign in before.items()}
    for process, sign in posted.items():
        if process not in before or before[process].beat != sign["beat"]:
            signs[process] = Sign(**sign)
    return signs


def lost(signs: Mapping[int, Sign], lost_looks: int, lost_seconds: float) -> str | None:
    """The processes that are gone, if any are, in words."""
    gone = [f"process {process} {sign}" for process, sign in signs.items() if sign.looks >= lost_looks]
    verb = "is" if len(gone) == 1 else "are"
    return f"{_listed(gone)} {verb} gone: not heard of for {lost_seconds:.0f} s" if gone else None


def behind(signs: Mapping[int, Sign]) -> str | None:
    """The processes that the others wait for, if any are behind, in words."""
    furthest = max(signs.values(), key=lambda sign: sign.moves, default=None)
    late = [f"process {process} {sign}" for process, sign in signs.items() if furthest and sign.moves < furthest.moves]
    return f"{_listed(late)} did not reach where the others are: {furthest.where}" if furthest and late else None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MOST} more" if len(names) > _NAMED_MOST else ""
    return " and ".join(names[:_NAMED_MOST]) + more
