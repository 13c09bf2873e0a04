"""Checkpoints of a run, written by Orbax in the background: the whole state, and as JSON the recipe, the data's
content hash and the versions that made it. Nothing in them is code, and reading one runs none. A checkpoint gets its
name when all its files are written, the last of them a list of their SHA-256 hashes; nothing is restored that does
not match its list.
"""

import contextlib
import hashlib
import logging
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from podium.errors import UserError
from podium.host.files import reporting, sha256
from podium.host.versions import versions
from podium.processes.broadcast import read_by_first, shapes_of
from podium.processes.join import runtime
from podium.recipe.reading import to_dict
from podium.recipe.schema import Recipe
from podium.step.programs import Step
from podium.step.state import State
from podium.train.best_checkpoint import best_step, note_accuracy
from podium.train.checkpoint_files import HASHES, complete_steps, damage, list_hashes
from podium.train.saved_state import Name, answering_leaves, leaves_by_name, leaves_on_disk, name_of, parts_by_name

_KEPT = 3
_DAMAGED = "damaged-"
_SLOW_DISK = 20e6  # bytes a second
_OURS = re.compile(r"\d+(\.orbax-checkpoint-tmp.*)?")  # a step, or what Orbax writes before it is one

logging.getLogger("absl").setLevel(logging.CRITICAL)  # Orbax logs the traceback of an error that it also raises


class NotFinite(Exception):
    """Says what is not finite, the loss or a weight, and at which step; checkpoints before it are as they were."""


class Checkpoints:
    """The checkpoints of one run directory. Use it in a `with`, so that the last write ends before the program does."""

    def __init__(self, run: Path) -> None:
        self.run, self._directory = run, (run / "checkpoints").absolute()
        self.slowest_seconds = 0.0
        self._saving = 0, 0.0
        with reporting(run / "checkpoints", "choose another --run"):
            self._directory.mkdir(exist_ok=True)
        self._orbax = ocp.AsyncCheckpointer(
            ocp.CompositeCheckpointHandler(),
            async_options=ocp.options.AsyncOptions(post_finalization_callback=self._list_hashes),
            # Else Orbax may still be writing its own file when its hash is taken.
            checkpoint_metadata_store=ocp.metadata.metadata_store(enable_write=True, blocking_write=True),
        )
        self._reader = _reader()
        sys.unraisablehook = _without_late_writers

    def save(self, state: State, step: int, *, recipe: Recipe, data_hash: str) -> None:
        """Copies a portable state off the devices and returns; the write continues while training does. Waits first for
        the write before, so a kill at any moment costs less than two intervals. What is not finite is not saved."""
        self.wait()
        on_host = _host_copy(state)
        if not all(np.isfinite(np.sum(leaf)) for leaf in jax.tree.leaves(on_host)):
            raise NotFinite(f"a weight is not finite after step {step}")
        about = {
            "step": step,
            "recipe": to_dict(recipe),
            "data_hash": data_hash,
            "versions": versions(),
        }
        arguments = ocp.args.Composite(
            state=ocp.args.StandardSave(parts_by_name(on_host)), about=ocp.args.JsonSave(about)
        )
        self._saving = step, time.perf_counter()
        with self._reporting():
            for old in self.steps()[: 1 - _KEPT] if jax.process_index() == 0 else ():
                if old != self.best():
                    self._remove(old)
            self._orbax.save(self._directory / str(step), args=arguments)

    def write_seconds(self, state: State) -> float:
        """What writing a checkpoint takes: the slowest write so far, or before the first that of a slow disk."""
        return self.slowest_seconds or sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / _SLOW_DISK

    def check(self) -> None:
        """Reports a write that has failed in the background."""
        with self._reporting():
            self._orbax.check_for_errors()

    def wait(self) -> None:
        """Waits until the last save is whole on disk."""
        with self._reporting():
            self._orbax.wait_until_finished()

    def steps(self) -> list[int]:
        """The steps of the checkpoints that were written to their end, ascending."""
        return complete_steps(self._directory)

    def best(self) -> int | None:
        """The kept step with the highest accuracy, as far as `note_accuracy` was told."""
        return best_step(self._directory, self.steps())

    def note_accuracy(self, step: int, top1: float) -> None:
        """Remembers `step` as the best if it is; the best is kept beside the newest."""
        note_accuracy(self._directory, self.steps(), step=step, top1=top1)

    def newest_good(self, say: Callable[[str], None] = lambda _: None) -> int | None:
        """The newest step whose files match their hashes; each that does not is reported through `say`."""
        for step in reversed(self.steps()):
            found = damage(self._directory / str(step))
            if found is None:
                return step
            say(f"checkpoint {self.run}/checkpoints/{step} is damaged ({found}); taking the one before it")
        return None

    def verify(self, step: int) -> None:
        """Whether the files of a checkpoint are as they were written."""
        if found := damage(self._directory / str(step)):
            raise UserError(f"checkpoint {self.run}/checkpoints/{step} is damaged ({found}); choose another step")

    def first_step(self, from_step: int | None, say: Callable[[str], None]) -> int:
        """The step after which the run resumes: the newest good checkpoint's, or `from_step`; 0 if it starts."""
        if from_step is None:
            step = self.newest_good(say) or 0
            if not step and self.steps():  # never start over where somebody may still repair
                raise UserError(
                    f"every checkpoint in {self.run}/checkpoints is damaged; put one back from a copy, or start over "
                    f"with another --run"
                )
        elif from_step in self.steps():
            self.verify(from_step)
            step = from_step
        else:
            kept = ", ".join(map(str, self.steps())) or "none"
            raise UserError(f"{self.run} has no checkpoint of --from-step {from_step}; kept are {kept}")
        self._go_back_to(step, keep_later=from_step is None)
        return step

    def _go_back_to(self, step: int, keep_later: bool) -> None:
        """Clears away what a restart after `step` must not meet: what killed writes have left, and later checkpoints.
        These are damaged if nobody asked to go back, and are then only set aside. Other files stay."""
        with self._reporting():
            for found in self._directory.iterdir():
                complete = found.name.isdigit() and (found / HASHES).exists()
                if complete and int(found.name) <= step:
                    continue
                if complete and keep_later:
                    shutil.rmtree(found.with_name(_DAMAGED + found.name), ignore_errors=True)
                    found.rename(found.with_name(_DAMAGED + found.name))
                elif found.is_dir() and _OURS.fullmatch(found.name):
                    shutil.rmtree(found)

    def restore(self, step: int, programs: Step, *, answering: bool = False) -> State:
        """The state saved at `step`, as `programs` need it on their chips; or the one that makes the run's answers."""
        shapes = jax.eval_shape(lambda: programs.portable(programs.init()))
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=programs.everywhere), shapes)
        return programs.resumed(self.load(step, like, answering=answering))

    def load(self, step: int, like: State, *, answering: bool = False) -> State:
        """The portable state saved at `step`, laid out on devices as `like` (arrays or shapes with shardings). Norms of
        the weights and averages that the checkpoint lacks are None, slots that it lacks are zero. Of several processes
        the first reads it for all."""
        wanted = leaves_by_name(parts_by_name(like))
        saved = read_by_first(lambda: self.leaves(step, answering=answering), shapes_of(wanted))
        network = [
            {name: leaf.shape for name, leaf in leaves.items() if name[0] in ("step", "params", "stats")}
            for leaves in (saved, wanted)
        ]
        if network[0] != network[1]:  # its files are as they were written, so it is what we expect that differs
            raise UserError(
                f"{self.run}/checkpoints/{step} belongs to a different network; if it was trained from Python with "
                f"a make_model, give that again: open_run({str(self.run)!r}, make_model)"
            )
        if ("weight_norms",) not in saved:
            like = replace(like, weight_norms=None)
        if not any(name[0] == "averaged" for name in saved):
            like = replace(like, averaged=None)
        return jax.tree_util.tree_map_with_path(lambda path, leaf: on_devices(saved.get(name_of(path)), leaf), like)

    def leaves(self, step: int, *, answering: bool = False) -> dict[Name, Any]:
        """All that was saved at `step`, by name, in host memory; `answering`: with the averages, if there are some, in
        place of the weights and statistics."""
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore())
        saved = leaves_on_disk(self._reader.restore(self._directory / str(step), args=arguments)["state"])
        return answering_leaves(saved) if answering else saved

    def fingerprint(self, step: int) -> str:
        """SHA-256 of the list of its files' hashes."""
        return sha256(self._directory / str(step) / HASHES)

    def about(self, step: int) -> dict[str, Any]:
        arguments = ocp.args.Composite(about=ocp.args.JsonRestore())
        return self._reader.restore(self._directory / str(step), args=arguments)["about"]

    def way_back(self) -> str:
        """What to type after a run has gone wrong."""
        with contextlib.suppress(UserError):
            self.wait()
        steps = self.steps()
        if not steps:
            return "there is no checkpoint yet to go back to"
        return (
            f"checkpoints {', '.join(map(str, steps))} are kept; to go back, run the same command with "
            f"--run {self.run} --from-step {steps[-1]} and a changed --set"
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with contextlib.suppress(UserError) if kind else contextlib.nullcontext():  # the first error counts
            self.wait()
        with contextlib.suppress(Exception):  # closes what a failed write may have left half open
            self._orbax.close()

    def _list_hashes(self) -> None:
        """Called by Orbax when every file is written and the directory still has its temporary name."""
        step, began = self._saving
        (directory,) = self._directory.glob(f"{step}.*")
        list_hashes(directory)
        self.slowest_seconds = max(self.slowest_seconds, time.perf_counter() - began)

    def _remove(self, step: int) -> None:
        (self._directory / str(step) / HASHES).unlink()  # from here on it is no checkpoint
        shutil.rmtree(self._directory / str(step))

    @contextlib.contextmanager
    def _reporting(self) -> Any:
        try:
            yield
        except jax.errors.JaxRuntimeError:  # of a process that is gone, not of the disk: the watchdog names it
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            if len(reason) > 300:  # paths make it long; what failed stands at its start, why at its end
                reason = f"{reason[:100]} … {reason[-200:]}"
            good = self.steps()
            kept = f"step {good[-1]} is the last good one" if good else "there is none yet"
            raise UserError(
                f"the checkpoint of step {self._saving[0]} could not be written to {self._directory}: {reason}; "
                f"{kept}; make room or make it writable, then run the same command again"
            ) from error


def _reader() -> ocp.Checkpointer:
    """Makes a reader that one of several processes may use alone: it waits for no other."""
    me = runtime().process_id
    alone = ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"reader-{me}"
    )
    handler = ocp.CompositeCheckpointHandler(composite_options=ocp.CompositeOptions(multiprocessing_options=alone))
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def weights_hash(state: State) -> str:
    """SHA-256 of parameters, batch-norm statistics and averages, names included."""
    digest = hashlib.sha256()
    hashed = (state.params, state.stats, *([] if state.averaged is None else [state.averaged]))
    for path, leaf in jax.tree_util.tree_leaves_with_path(_host_copy(hashed)):
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}\n".encode())
        digest.update(leaf.tobytes())
    return digest.hexdigest()


def _host_copy(tree: Any) -> Any:
    """Copies in host memory: training continues and overwrites the originals. One replica is enough, and writing NumPy
    arrays spares Orbax from slicing replicas on the devices (seen: 0.03 s instead of 0.2 s, and 5 s at first)."""
    local = jax.device_get(jax.tree.map(lambda x: x.addressable_data(0) if x.is_fully_replicated else x, tree))
    return jax.tree.map(np.array, local)


_report = sys.unraisablehook


def _without_late_writers(problem: "sys.UnraisableHookArgs") -> None:
    """The first write that fails closes the event loop of all; each of the others then prints a traceback of that, and
    the one line that says what happened would be lost among them."""
    if not (isinstance(problem.exc_value, RuntimeError) and str(problem.exc_value) == "Event loop is closed"):
        _report(problem)


def on_devices(value: np.ndarray | None, like: Any) -> jax.Array:
    """`value` laid out as `like` is; zeros if there is none."""
    numbers = np.zeros(like.shape, like.dtype) if value is None else value
    return jax.make_array_from_callback(numbers.shape, like.sharding, lambda index: numbers[index])
