"""Ends a run that hangs. A thread looks once a second. Steps that stop for too long: it
names the processes that are behind, writes every thread's stack into the run's directory and ends this process. A
process that no longer posts: it names that one and ends this one, whose collectives would wait for it forever. The
processes post through JAX's coordination service, which process 0 keeps.

Time is counted in looks, so a machine that was suspended does not look like a run that hangs.
"""

import faulthandler
import os
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jax

from podium.errors import EXIT_HUNG, Stopped, UserError
from podium.processes import agree

_LOOK_SECONDS = 1.0
_LOST_LOOKS = 10  # a process that has not been heard of for so long is gone
_BOARD = "at"


@dataclass(frozen=True)
class Sign:
    """What one process last posted, and how many looks ago."""

    who: str
    where: str
    moves: int
    beat: int
    looks: int = 0

    def __str__(self) -> str:
        return f"({self.who}, {self.where})"


class Watchdog:
    """Watches while its `with` lasts. The loop tells it how far it is."""

    def __init__(self, run: Path, stall_minutes: float, *, look_seconds: float = _LOOK_SECONDS) -> None:
        self._run, self._look_seconds = run, look_seconds
        self._stall_looks = 60 * stall_minutes / look_seconds
        self._is_one_of_several = jax.process_count() > 1
        self._where, self._moves, self._beats = "starting", 0, 0
        self._moves_seen, self._unmoved_looks = 0, 0
        self._signs: dict[int, Sign] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="podium-watchdog", daemon=True)

    def moved(self, where: str) -> None:
        """Says that the next thing was started. All processes start the same things, so their moves can be compared."""
        self._where, self._moves = where, self._moves + 1

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        if self._is_one_of_several and kind and not issubclass(kind, UserError | Stopped):
            # Most likely a collective has failed because a process is gone; the thread will find which, and end us.
            first_line = str(error).partition("\n")[0]
            print(f"process {jax.process_index()}: {kind.__name__}: {first_line}", file=sys.stderr)
            self._thread.join(2 * _LOST_LOOKS * self._look_seconds)
        self._ended.set()
        self._thread.join()

    def look(self) -> str | None:
        """Looks once: why this process must end, if it must."""
        if self._is_one_of_several and (loss := self._listen()):
            return loss
        # Compiling takes as long as it takes: nothing is expected before the first move.
        unmoved = self._moves_seen and self._moves_seen == self._moves
        self._unmoved_looks = self._unmoved_looks + 1 if unmoved else 0
        self._moves_seen = self._moves
        return self._hung() if self._unmoved_looks >= self._stall_looks else None

    def _watch(self) -> None:
        while not self._ended.wait(self._look_seconds):
            if reason := self.look():
                self._end(reason)

    def _listen(self) -> str | None:
        """Exchanges signs with the other processes; returns which of them is gone, if one is."""
        self._beats += 1
        who = f"{socket.gethostname()}, pid {os.getpid()}"
        mine = {"who": who, "where": self._where, "moves": self._moves, "beat": self._beats}
        try:
            agree.post(_BOARD, mine)
            self._signs = heard(self._signs, agree.posted(_BOARD))
        except jax.errors.JaxRuntimeError as error:
            return f"process 0, the coordinator, is gone ({str(error).splitlines()[0]})"
        return lost(self._signs, self._look_seconds)

    def _hung(self) -> str:
        stacks = self._run / f"stacks-{jax.process_index()}.txt"
        try:
            with stacks.open("w") as file:
                faulthandler.dump_traceback(file, all_threads=True)
            written = f"stacks in {stacks}"
        except OSError as error:  # of the disk, perhaps, that nothing moves on
            written = f"stacks could not be written to {stacks} ({error.strerror})"
        missing = behind(self._signs) or self._where
        patience = "raise --stall-minutes if a step may take so long"
        return f"nothing moved for {self._stall_looks * self._look_seconds:.0f} s: {missing}; {written}; {patience}"

    def _end(self, why: str) -> NoReturn:
        line = f"podium: process {jax.process_index()}: {why}; the same command resumes from the last checkpoint"
        try:
            print(line, file=sys.stderr, flush=True)
        finally:  # whether or not anybody can read it
            os._exit(EXIT_HUNG)  # an orderly end would wait for the others


def heard(before: Mapping[int, Sign], posted: Mapping[int, Mapping[str, Any]]) -> dict[int, Sign]:
    """Each process's newest sign, from what all have posted; one whose beat is the same as before grows older."""
    signs = {}
    for process, sign in posted.items():
        old = before.get(process)
        signs[process] = Sign(**sign, looks=old.looks + 1 if old and old.beat == sign["beat"] else 0)
    return signs


def lost(signs: Mapping[int, Sign], look_seconds: float) -> str | None:
    """The process that is gone, if one is, in words."""
    for process, sign in signs.items():
        if sign.looks >= _LOST_LOOKS:
            return f"process {process} {sign} is gone: not heard of for {_LOST_LOOKS * look_seconds:.0f} s"
    return None


def behind(signs: Mapping[int, Sign]) -> str | None:
    """The processes that the others wait for, if any are behind, in words."""
    furthest = max(signs.values(), key=lambda sign: sign.moves, default=None)
    late = [f"process {process} {sign}" for process, sign in signs.items() if furthest and sign.moves < furthest.moves]
    return f"{' and '.join(late)} did not reach where the others are: {furthest.where}" if furthest and late else None
