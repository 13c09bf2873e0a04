"""Ends a run that hangs. A thread looks once a second. Steps that stop for too long: it names the processes that are
behind. A process that is gone (`roll_call`): it names that one, and ends this one, whose collectives would wait for it
forever. Either way every thread's stack is written into the run's directory first.

Time is counted in looks, so a machine that was suspended does not look like a run that hangs.
"""

import contextlib
import faulthandler
import itertools
import sys
import threading
from pathlib import Path

import jax

from podium.errors import Stopped, UserError
from podium.processes import coordinator_loss
from podium.processes.join import is_first, process_count, runtime
from podium.train.roll_call import RollCall

_LOOK_SECONDS = 1.0
_numbers = itertools.count()  # of this process's watches, the same in all processes of a run


class Watchdog:
    """Watches while its `with` lasts. The loop tells it how far it is."""

    def __init__(self, run: Path, stall_minutes: float, *, look_seconds: float = _LOOK_SECONDS) -> None:
        self._run, self._look_seconds = run, look_seconds
        self._stall_looks = 60 * stall_minutes / look_seconds
        self._where, self._moves = "starting", 0
        self._moves_seen, self._unmoved_looks = 0, 0
        self._roll_call = None
        if process_count() > 1:
            name = f"watch/{next(_numbers)}"
            self._roll_call = RollCall(runtime().process_id, process_count(), look_seconds=look_seconds, name=name)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="podium-watchdog", daemon=True)

    def moved(self, where: str) -> None:
        """Says that the next thing was started. All processes start the same things, so their moves can be compared."""
        self._where, self._moves = where, self._moves + 1

    def __enter__(self) -> "Watchdog":
        coordinator_loss.before_end(self._with_stacks)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        if self._roll_call and self._moves and kind and not issubclass(kind, UserError | Stopped):
            # Most likely a collective has failed because a process is gone; the thread will find which, and end us.
            first_line = str(error).partition("\n")[0]
            print(f"process {runtime().process_id}: {kind.__name__}: {first_line}", file=sys.stderr)
            self._roll_call.broken = True
            self._thread.join(2 * self._roll_call.lost_seconds)
        self._ended.set()
        self._thread.join()
        if self._roll_call:
            with contextlib.suppress(jax.errors.JaxRuntimeError):  # process 0 is gone already
                self._roll_call.over()
        coordinator_loss.forget(self._with_stacks)

    def look(self) -> str | None:
        """Looks once: why this process must end, if it must."""
        if self._roll_call and (loss := self._roll_call.look(self._where, self._moves)):
            return loss
        # Compiling takes as long as it takes: nothing is expected before the first move.
        unmoved = self._moves_seen and self._moves_seen == self._moves
        self._unmoved_looks = self._unmoved_looks + 1 if unmoved else 0
        self._moves_seen = self._moves
        return self._hung() if self._unmoved_looks >= self._stall_looks else None

    def _watch(self) -> None:
        while not self._ended.wait(self._look_seconds):
            if reason := self.look():
                if self._roll_call and is_first():  # with this process goes the store: the others shall read it first
                    self._ended.wait(self._roll_call.verdict_seconds)
                coordinator_loss.end(reason, runtime().process_id)

    def _hung(self) -> str:
        missing = (self._roll_call and self._roll_call.late) or self._where
        patience = "raise --stall-minutes if a step may take so long"
        return f"nothing moved for {self._stall_looks * self._look_seconds:.0f} s: {missing}; {patience}"

    def _with_stacks(self, reason: str) -> str:
        """Writes every thread's stack, and says where."""
        stacks = self._run / f"stacks-{runtime().process_id}.txt"
        try:
            with stacks.open("w") as file:
                faulthandler.dump_traceback(file, all_threads=True)
            return f"{reason}; stacks in {stacks}"
        except OSError as error:  # of the disk, perhaps, that nothing moves on
            return f"{reason}; stacks could not be written to {stacks} ({error.strerror})"
