"""A run that is kept in an object store (s3://…, gs://…, whatever fsspec knows). Training works in a directory of this
machine, as ever; a thread copies to the store what is whole there, and a start fetches what the store has. The store
holds the truth, so the next machine resumes from it. A checkpoint is in the store when its list of hashes is, which is
copied last.

A store has no locks: nothing keeps a second training out of such a run.
"""

import contextlib
import hashlib
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec

from podium.errors import UserError
from podium.host.paths import cache_directory
from podium.processes import agree
from podium.processes.join import is_first, process_count
from podium.train import run_directory
from podium.train.checkpoint_files import HASHES, complete_steps

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.+)")  # a path has lost one of the two slashes
_COPY_SECONDS = 10.0
_CHECKPOINTS = "checkpoints"
_OF_THIS_MACHINE = {"lock"}


def url_of(run: str | Path) -> str | None:
    """The address of a run that is in a store; None of one in a directory."""
    found = _URL.fullmatch(str(run))
    return f"{found[1]}://{found[2].rstrip('/')}" if found else None


def local_copy(url: str) -> Path:
    """Where this machine works on a run."""
    return cache_directory() / "runs" / f"{url.rpartition('/')[2]}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"


def fetched(run: str | Path) -> Path:
    """The run as a directory: of one in a store, what the store has, or where it is being trained here, that."""
    url = url_of(run)
    if url is None:
        return Path(run)
    try:
        return _Store(url).fetch()
    except _Trained:
        return local_copy(url)


class _Trained(UserError):
    """Says that a run is being trained on this machine."""


@contextlib.contextmanager
def kept(run: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """The directory to train `run` in. While the `with` lasts, and at its end, a store gets what is new there."""
    url = url_of(run)
    if url is None:
        yield run
        return
    if agree.processes_on_this_host() < process_count():
        raise UserError(f"{url} serves the processes of one host; give several a --run on a file system they share")
    directory = Path(agree.on_first(lambda: str(_Store(url).fetch())))
    say(f"{url} has no locks, so make sure that nobody else trains it; working in {directory}")
    if not is_first():
        yield directory
        return
    over, failed = threading.Event(), list[str]()
    copy_on = partial(_copy_on, _Store(url), over, failed, say=say)
    thread = threading.Thread(target=copy_on, daemon=True, name="podium-store")
    thread.start()
    try:
        yield directory
    finally:
        over.set()
        thread.join()
    if failed:
        raise UserError(f"{url} could not be written: {failed[-1]}; the run is whole in {directory}")


def _copy_on(store: "_Store", over: threading.Event, failed: list[str], *, say: Callable[[str], None]) -> None:
    """Copies until it is over, and once more. A store that does not answer may answer the next time."""
    while True:
        last = over.wait(_COPY_SECONDS)
        try:
            store.copy()
            failed.clear()
        except Exception as error:  # each store has its own kinds
            if not failed:
                say(f"{store.url} could not be written, trying again: {_line(error)}")
            failed.append(_line(error))
        if last:
            return


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


class _Store:
    """One run's place in a store, and its copy here."""

    def __init__(self, url: str) -> None:
        self.url, self.directory = url, local_copy(url)
        try:
            system, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:  # fsspec names the package that a protocol needs
            raise UserError(f"{url} cannot be opened: {error}") from None
        self._system: Any = system
        self._root = str(root).rstrip("/")
        self._copied: dict[str, tuple[int, int]] = {}

    def fetch(self) -> Path:
        """Makes the copy what the store has. A checkpoint whose list of hashes is here already is not read again."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(run_directory.hold(self.directory, lambda _: None, patience=0.0))
            except UserError as error:
                raise _Trained(str(error)) from None
            self._fetch()
        return self.directory

    def _fetch(self) -> None:
        try:
            there = self._files()
            same = {step for step in self._steps(there) if self._has(step)}
            for entry in self._entries():
                if entry.name not in same:
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            for name in sorted(there, key=lambda name: (name.endswith(HASHES), name)):
                step = _step_of(name)
                if step is None or (step in self._steps(there) and step not in same):
                    (self.directory / name).parent.mkdir(parents=True, exist_ok=True)
                    self._system.get_file(f"{self._root}/{name}", str(self.directory / name))
        except (OSError, ValueError) as error:
            raise UserError(f"{self.url} could not be read: {_line(error)}; check the address and its rights") from None

    def copy(self) -> None:
        """Makes the store what is whole here: files that have changed, checkpoints that are new, and none that went."""
        steps = {str(step) for step in complete_steps(self.directory / _CHECKPOINTS)}
        for path in sorted(self.directory.rglob("*"), key=lambda path: (path.name == HASHES, path)):
            name = str(path.relative_to(self.directory))
            step = _step_of(name)
            if path.is_file() and name not in _OF_THIS_MACHINE and (step is None or step in steps):
                with contextlib.suppress(FileNotFoundError):  # removed, or given its final name, a moment ago
                    self._put(path, name)
        there = self._files()
        gone = {step for name in there if (step := _step_of(name)) and step not in steps}
        for step in gone:
            if f"{_CHECKPOINTS}/{step}/{HASHES}" in there:  # from here on it is no checkpoint
                self._system.rm_file(f"{self._root}/{_CHECKPOINTS}/{step}/{HASHES}")
            self._system.rm(f"{self._root}/{_CHECKPOINTS}/{step}", recursive=True)

    def _put(self, path: Path, name: str) -> None:
        state = path.stat()
        seen = state.st_mtime_ns, state.st_size
        if self._copied.get(name) != seen and not path.name.endswith(".tmp"):
            self._system.put_file(str(path), f"{self._root}/{name}")
            self._copied[name] = seen

    def _files(self) -> set[str]:
        """Names of all that the store has, below the run."""
        self._system.invalidate_cache()
        return {str(path).removeprefix(f"{self._root}/") for path in self._system.find(self._root)}

    def _steps(self, there: set[str]) -> set[str]:
        """The checkpoints that are whole in the store."""
        return {step for name in there if (step := _step_of(name)) and name.endswith(f"{step}/{HASHES}")}

    def _has(self, step: str) -> bool:
        """Whether the checkpoint is here as it is in the store."""
        own = self.directory / _CHECKPOINTS / step / HASHES
        theirs = f"{self._root}/{_CHECKPOINTS}/{step}/{HASHES}"
        return own.is_file() and bool(self._system.cat_file(theirs) == own.read_bytes())

    def _entries(self) -> list[Path]:
        """What is here, checkpoint by checkpoint."""
        checkpoints = self.directory / _CHECKPOINTS
        inside = list(checkpoints.iterdir()) if checkpoints.is_dir() else []
        left = {checkpoints, *(self.directory / name for name in _OF_THIS_MACHINE)}
        return inside + [entry for entry in self.directory.iterdir() if entry not in left]


def _step_of(name: str) -> str | None:
    """The checkpoint that a file belongs to."""
    parts = name.split("/")
    return parts[1] if parts[0] == _CHECKPOINTS and len(parts) > 2 else None
