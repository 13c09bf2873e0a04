"""A run's directory: run.json says what the run is before it starts, summary.json how it ended; between them come
the checkpoints, metrics.jsonl and TensorBoard's events. A directory that holds anything else is somebody's work
and is left alone.

A recipe says two things: what the run *is*, which must not change while it lasts, and how this machine carries it
out, which may. `_MACHINE` names the second kind; docs/resume.md explains the choice.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from podium.data.dataset.shards import ImageSet
from podium.errors import UserError
from podium.host.files import reporting
from podium.host.names import printable
from podium.host.sealed import unseal, write_sealed
from podium.recipe.reading import from_run, to_dict
from podium.recipe.schema import Recipe


@dataclass(frozen=True)
class RunInfo:
    recipe: Recipe
    data: str
    data_hash: str
    classes: tuple[str, ...]
    changes: tuple[dict[str, Any], ...] = ()
    """Each restart that changed something: after which step, and what."""
    weights: dict[str, str] | None = None
    """Where the weights that it started from are, and their SHA-256; None if it started from random ones."""


# They change when and where things happen, never which images a step sees or what it computes with them (sums over
# other chips agree to fp32 rounding).
_MACHINE = (
    "torus", "reduce", "weight_update", "bucket_mb", "max_lost_steps", "log_every_steps", "evaluate_every_epochs",
    "data.cache", "data.cache_gb", "data.threads", "data.max_broken_share",
)  # fmt: skip
# These cannot change even with --from-step: the checkpoint's shapes and the meaning of a step hang on them.
_FIXED = ("model", "batch_global", "steps_per_dispatch", "data.train_images", "data.validation_images")
_LENGTH = ("epochs", "schedule.at_epochs")  # what a run that has ended may be extended by
_FREE = ("model.freeze",)  # which layers learn is part of the course
_RUN, _LOCK = "run.json", "lock"
_FIELDS_OF_0_1 = {"recipe", "data", "data_hash", "classes", "changes"}  # which had no hash of themselves
_LEASE_SECONDS = 120.0  # for so long a file server may keep the lock of a host that has crashed


@contextlib.contextmanager
def claimed(
    run: Path,
    recipe: Recipe,
    images: ImageSet,
    *,
    from_step: int | None,
    weights: dict[str, str] | None = None,
    say: Callable[[str], None],
) -> Iterator[list[str]]:
    """Holds the run while the `with` lasts, and gives what `claim` returns. Nothing is written to a directory that
    holds something else, and nothing but the lock before it is held: of two that start at once, one is refused."""
    _refuse_others(run, from_step)
    with hold(run, say):
        yield claim(run, recipe, images, from_step=from_step, weights=weights)


def claim(
    run: Path,
    recipe: Recipe,
    images: ImageSet,
    *,
    from_step: int | None = None,
    weights: dict[str, str] | None = None,
) -> list[str]:
    """Makes the run, or finds that it is this very one, unfinished or extended. Returns what differs and may: what
    belongs to the machine, and with `from_step` also the course that training takes from that step on."""
    info = RunInfo(recipe, str(images.directory.absolute()), images.content_hash, images.classes, weights=weights)
    _refuse_others(run, from_step)
    if (run / _RUN).exists():
        theirs = read(run)
        changed = _difference(to_dict(theirs.recipe), to_dict(recipe))
        extends = (run / "summary.json").exists()
        refused = [key for key in changed if not _may_change(key, goes_back=from_step is not None, extends=extends)]
        differences = [changed[key] for key in refused]
        if theirs.data_hash != info.data_hash:
            differences.append(f"data {theirs.data} → {info.data}")
        if weights and weights["sha256"] != (theirs.weights or {}).get("sha256"):
            differences.append(f"weights {(theirs.weights or {}).get('source')} → {weights['source']}")
        if differences:
            raise UserError(f"{run} holds a different run ({', '.join(differences)}); choose another --run")
        if extends and from_step is None and recipe.train_steps <= theirs.recipe.train_steps:
            raise UserError(
                f"{run} is finished, after {theirs.recipe.epochs:g} epochs; --set epochs={recipe.epochs:g} lies before "
                f"that: give more epochs, or go back with --from-step"
            )
        if from_step is not None and from_step > recipe.train_steps:
            raise UserError(
                f"--from-step {from_step} lies beyond the end of {recipe.epochs:g} epochs, which are "
                f"{recipe.train_steps} steps; choose an earlier step or more epochs"
            )
        return list(changed.values())
    with reporting(run, "choose another --run"):
        run.mkdir(parents=True, exist_ok=True)
        _write(run, info)
    return []


def _refuse_others(run: Path, from_step: int | None) -> None:
    if (run / _RUN).exists():
        return
    if from_step is not None:
        raise UserError(f"--from-step {from_step} needs a run to go back in, and {run} holds none; give its --run")
    with reporting(run, "choose another --run"):
        if run.exists() and any(found.name != _LOCK for found in run.iterdir()):
            raise UserError(f"{run} is not empty and holds no run; choose another --run")


@contextlib.contextmanager
def hold(run: Path, say: Callable[[str], None], patience: float = _LEASE_SECONDS) -> Iterator[None]:
    """Keeps a second training out of the run, which would clear away this one's checkpoints and write between its
    metrics. The lock ends with the process, however that ends."""
    with reporting(run, "choose another --run"):
        run.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
        with reporting(run / _LOCK), contextlib.ExitStack() as opening:  # closing writes what a full disk has refused
            lock = opening.enter_context((run / _LOCK).open("a+"))
            _wait_for(lock, run, say, patience=patience)
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}")
            lock.flush()
            opened.enter_context(opening.pop_all())
        yield


def _wait_for(lock: IO[str], run: Path, say: Callable[[str], None], *, patience: float) -> None:
    """Returns when the lock is ours."""
    if _locked(lock):
        return
    lock.seek(0)
    holder = printable(lock.read()) or "another process"
    taken, advice = f"{run} is being trained by {holder}", "wait for it, stop it or choose another --run"
    if holder.endswith(f" on {socket.gethostname()}"):
        raise UserError(f"{taken}; {advice}")
    say(f"{taken}; waiting up to {patience:.0f} s, in case that host has crashed")
    if not _locked(lock, patience):
        raise UserError(f"{taken}; {advice}; if that host is gone for good, remove {run}/{_LOCK}")


def _locked(file: IO[str], patience: float = 0.0) -> bool:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.5)
        except OSError:  # a file system without locks: nothing guards against a second training there
            return True
        else:
            return True


@dataclass(frozen=True)
class Change:
    """A restart that is unlike the start: with differences in the recipe, or back to an earlier step."""

    after_step: int
    differences: tuple[str, ...]
    from_step: int | None = None


def record_change(run: Path, recipe: Recipe, change: Change) -> None:
    """Writes down that from here on the run is trained with `recipe`."""
    info = read(run)
    entry = {"after_step": change.after_step, "changed": list(change.differences)}
    if change.from_step is not None:
        entry["from_step"] = change.from_step
    _write(run, dataclasses.replace(info, recipe=recipe, changes=(*info.changes, entry)))


def went_back_to(run: Path) -> int | None:
    """The step of the last `--from-step`, if there was any."""
    steps = [change.get("from_step") for change in read(run).changes]
    return next((step for step in reversed(steps) if step is not None), None)


def finished(run: Path, recipe: Recipe, *, data_hash: str, weights: dict[str, str] | None) -> dict[str, Any] | None:
    """The summary of a run that has ended, if nothing is left to do: all the same, but for the machine."""
    if not (run / "summary.json").is_file() or not (run / _RUN).exists():
        return None
    theirs = read(run)
    changed = [key for key in _difference(to_dict(theirs.recipe), to_dict(recipe)) if key not in _MACHINE]
    other_weights = weights is not None and weights["sha256"] != (theirs.weights or {}).get("sha256")
    if changed or other_weights or theirs.data_hash != data_hash:
        return None
    try:
        return unseal((run / "summary.json").read_bytes())
    except ValueError as error:
        raise UserError(f"{run}/summary.json is damaged ({error}); remove it, and the run ends again") from None


def reopen(run: Path) -> None:
    """Lets a run that had ended be one that is under way."""
    (run / "summary.json").unlink(missing_ok=True)


def _may_change(key: str, *, goes_back: bool, extends: bool) -> bool:
    if key in _MACHINE or (extends and key in _LENGTH):
        return True
    return goes_back and (not key.startswith(_FIXED) or key.startswith(_FREE))


def _write(run: Path, info: RunInfo) -> None:
    about = {
        "recipe": to_dict(info.recipe),
        "data": info.data,
        "data_hash": info.data_hash,
        "classes": info.classes,
        "changes": info.changes,
    }
    write_sealed(run / _RUN, about | ({"weights": info.weights} if info.weights else {}))


def read(run: Path) -> RunInfo:
    try:
        text = (run / _RUN).read_bytes()
        about = unseal(text, required=set(json.loads(text)) != _FIELDS_OF_0_1)
        recipe, changes = from_run(about["recipe"]), tuple(about["changes"])
        return RunInfo(
            recipe, about["data"], about["data_hash"], tuple(about["classes"]), changes, about.get("weights")
        )
    except OSError:
        raise UserError(f"{run} holds no run (no readable {_RUN}); give the --run directory of a training") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UserError) as error:
        raise UserError(f"{run}/{_RUN} is damaged ({error}); put back a copy, or choose another --run") from None


def finish(run: Path, summary: dict[str, Any]) -> None:
    write_sealed(run / "summary.json", summary)


def _difference(a: dict[str, Any], b: dict[str, Any], where: str = "") -> dict[str, str]:
    """Key → 'key old → new' for every value that differs."""
    found: dict[str, str] = {}
    for key in sorted({*a, *b}):
        if isinstance(a.get(key), dict) and isinstance(b.get(key), dict):
            found |= _difference(a[key], b[key], f"{where}{key}.")
        elif a.get(key) != b.get(key):
            found[f"{where}{key}"] = f"{where}{key} {a.get(key)} → {b.get(key)}"
    return found
