"""Ends a run that hangs instead of letting it hang. A thread looks once a second. Steps that stop for too long: it
names the processes that are behind, writes every thread's stack into the run's directory and ends this process. A
process that is heard of no longer: it names that one and ends this one, whose collectives would wait for it forever.
The processes hear of each other through JAX's coordination service, which process 0 keeps.

Time is counted in looks, so a machine that was suspended does not look like a run that hangs.
"""

import faulthandler
import os
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import jax

from podium.errors import EXIT_HUNG, Stopped, UserError
from podium.processes import agree

_LOOK_SECONDS = 1.0
_LOST_LOOKS = 10  # a process that has not been heard of for so long is gone
_BOARD = "at"


@dataclass(frozen=True)
class _Sign:
    """What one process last told the others, and how many looks ago."""

    who: str
    where: str
    moves: int
    beat: int
    looks: int = 0

    def __str__(self) -> str:
        return f"({self.who}, {self.where})"


class Watchdog:
    """Watches while its `with` lasts. The loop tells it how far it is."""

    def __init__(self, run: Path, stall_minutes: float) -> None:
        self._run, self._stall_looks = run, 60 * stall_minutes / _LOOK_SECONDS
        self._is_one_of_several = jax.process_count() > 1
        self._where, self._moves, self._beats = "starting", 0, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="podium-watchdog", daemon=True)

    def moved(self, where: str) -> None:
        """The next thing was begun. All processes begin the same things, so their numbers of moves can be compared."""
        self._where, self._moves = where, self._moves + 1

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        if self._is_one_of_several and kind and not issubclass(kind, UserError | Stopped):
            # Most likely a collective has failed because a process is gone; the thread will find which, and end us.
            first_line = str(error).partition("\n")[0]
            print(f"process {jax.process_index()}: {kind.__name__}: {first_line}", file=sys.stderr)
            self._thread.join(2 * _LOST_LOOKS * _LOOK_SECONDS)
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        moves, unmoved = 0, 0
        signs: dict[int, _Sign] = {}
        while not self._ended.wait(_LOOK_SECONDS):
            if self._is_one_of_several:
                signs = self._hear(signs)
            unmoved = unmoved + 1 if moves and moves == self._moves else 0  # compiling takes as long as it takes
            moves = self._moves
            if unmoved >= self._stall_looks:
                self._end_hung(signs)

    def _hear(self, before: dict[int, _Sign]) -> dict[int, _Sign]:
        """The newest sign of each process; ends this one if another is gone."""
        self._beats += 1
        who = f"{socket.gethostname()}, pid {os.getpid()}"
        mine = {"who": who, "where": self._where, "moves": self._moves, "beat": self._beats}
        try:
            agree.post(_BOARD, mine)
            said = agree.posted(_BOARD)
        except jax.errors.JaxRuntimeError as error:
            self._end(f"process 0, the coordinator, is gone ({str(error).splitlines()[0]})")
        signs = {}
        for process, sign in said.items():
            old = before.get(process)
            signs[process] = _Sign(**sign, looks=old.looks + 1 if old and old.beat == sign["beat"] else 0)
            if signs[process].looks >= _LOST_LOOKS:
                unheard_seconds = _LOST_LOOKS * _LOOK_SECONDS
                self._end(f"process {process} {signs[process]} is gone: not heard of for {unheard_seconds:.0f} s")
        return signs

    def _end_hung(self, signs: dict[int, _Sign]) -> None:
        stacks = self._run / f"stacks-{jax.process_index()}.txt"
        try:
            with stacks.open("w") as file:
                faulthandler.dump_traceback(file, all_threads=True)
            written = f"stacks in {stacks}"
        except OSError as error:  # of the disk, perhaps, that nothing moves on
            written = f"stacks could not be written to {stacks} ({error.strerror})"
        furthest = max(signs.values(), key=lambda sign: sign.moves, default=None)
        behind = [
            f"process {process} {sign}" for process, sign in signs.items() if furthest and sign.moves < furthest.moves
        ]
        if furthest and behind:
            missing = f"{' and '.join(behind)} did not come to where the others are: {furthest.where}"
        else:
            missing = self._where
        patience = "raise --stall-minutes if so long a step is right"
        self._end(f"nothing moved for {self._stall_looks * _LOOK_SECONDS:.0f} s: {missing}; {written}; {patience}")

    def _end(self, why: str) -> NoReturn:
        line = f"podium: process {jax.process_index()}: {why}; the same command goes on after the last checkpoint"
        try:
            print(line, file=sys.stderr, flush=True)
        finally:  # whether or not anybody can read it
            os._exit(EXIT_HUNG)  # an orderly end would wait for the others
