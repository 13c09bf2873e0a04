"""Runs the tests of one mutant after the other, each in a process forked from one that has loaded what all of them
import, in a copy of the tree. What is forked has started no thread and no device.
"""

import compileall
import os
import py_compile
import re
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.mutants.table import Mistake, Mutant

ROOT = Path(__file__).parents[2]
_COPIED = ("src", "tests", "docs", "results", "pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md")
_LOADED = (
    "pytest",
    "hypothesis.strategies",
    "numpy",
    "scipy.stats",
    "jax.numpy",
    "flax.nnx",
    "optax",
    "PIL.Image",
    "rich",
)
_CPU_SECONDS = 90  # a mutant that never ends is noticed too, and a busy machine is not taken for one
_LOOK_SECONDS = 0.02
_WARNED = "ignore::pytest.PytestAssertRewriteWarning"  # as Hypothesis was loaded before pytest began
_PASSED, _NOTHING_RUN = 0, 5  # pytest's exit codes
_NO_VERDICT = 99
_SAID = "pytest.txt"


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killed_by: str
    """The first test that failed; "" if none did."""
    seconds: float


@dataclass(frozen=True)
class _Job:
    """Tests that run now, in a tree of their own."""

    tree: Path
    tests: tuple[str, ...]
    mutant: Mutant | None
    whole: str  # the mutant's file without the mistake
    process: int
    began: float

    def ended(self) -> int | None:
        """Pytest's exit code, or the signal that ended it, negated; None while it runs."""
        process, status = os.waitpid(self.process, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if process else None

    def failed(self, code: int) -> str:
        """The first test that failed, without its parameters; what ended pytest, if it could not say."""
        found = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", self.said(), re.MULTILINE)
        return found[1] if found else f"pytest ended with {code}"

    def said(self) -> str:
        """The end of what pytest wrote."""
        return (self.tree / _SAID).read_text(errors="replace")[-4000:]


def judge(mutants: list[Mutant], folder: Path, *, at_once: int, minutes: float) -> Iterator[Verdict]:
    """Every mutant, once its tests were seen to pass without it; none is begun after so many minutes."""
    end = time.monotonic() + 60 * minutes
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # as conftest.py does, but JAX reads it when it is loaded
    for name in _LOADED:
        import_module(name)
    waiting: list[tuple[tuple[str, ...], Mutant | None]] = []
    for tests in dict.fromkeys(mutant.tests for mutant in mutants):
        waiting += [(tests, None), *((tests, mutant) for mutant in mutants if mutant.tests == tests)]
    free = [_copy(folder / str(k)) for k in range(at_once)]
    running: list[_Job] = []
    sound: set[tuple[str, ...]] = set()  # tests that pass without a mistake
    while waiting or running:
        if time.monotonic() > end:
            waiting.clear()
        ready = [(tests, mutant) for tests, mutant in waiting if mutant is None or tests in sound]
        for tests, mutant in ready[: len(free)]:
            waiting.remove((tests, mutant))
            running.append(_start(free.pop(), tests, mutant))
        time.sleep(_LOOK_SECONDS)
        for job in list(running):
            code = job.ended()
            if code is None:
                continue
            running.remove(job)
            free.append(job.tree)
            if code in (_NOTHING_RUN, _NO_VERDICT) or (job.mutant is None and code != _PASSED):
                raise Mistake(
                    f"{' '.join(job.tests)} ends with code {code}, {job.mutant or 'without any mutant'}:\n{job.said()}"
                )
            if job.mutant is None:
                sound.add(job.tests)
            else:
                (job.tree / job.mutant.file).write_text(job.whole)
                killed_by = "" if code == _PASSED else job.failed(code)
                yield Verdict(job.mutant, killed_by, time.monotonic() - job.began)


def _copy(tree: Path) -> Path:
    """The tree, with the libraries that an editable install keeps elsewhere."""
    tree.mkdir(parents=True)
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, tree / name)
    podium = find_spec("podium")
    for place in (podium and podium.submodule_search_locations) or ():
        for library in Path(place).glob("*.so"):
            shutil.copy(library, tree / "src/podium")
    # By its hash Python sees which file has a mistake now, and takes the others as they were compiled here.
    by_hash = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(tree / "src", quiet=1, invalidation_mode=by_hash)
    return tree


def _start(tree: Path, tests: tuple[str, ...], mutant: Mutant | None) -> _Job:
    whole = (tree / mutant.file).read_text() if mutant else ""
    if mutant:
        (tree / mutant.file).write_text(whole.replace(mutant.old, mutant.new))
    began, process = time.monotonic(), os.fork()
    if process == 0:
        try:
            os._exit(_run(tree, tests))
        finally:
            os._exit(_NO_VERDICT)
    return _Job(tree, tests, mutant, whole, process, began)


def _run(tree: Path, tests: tuple[str, ...]) -> int:
    import pytest

    with open(tree / _SAID, "w") as said:
        for descriptor in (1, 2):
            os.dup2(said.fileno(), descriptor)
    os.chdir(tree)
    # Most programs are the same with and without a mistake.
    os.environ.setdefault("PODIUM_TEST_PROGRAMS", str(tree.parent / "programs"))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    # The copy's modules, whatever was loaded or installed: an editable install would find those of the original.
    sys.dont_write_bytecode = True
    sys.path[:] = [
        str(tree),
        str(tree / "src"),
        *(p for p in sys.path if p and not Path(p).is_relative_to(ROOT / "src")),
    ]
    sys.path.remove(str(ROOT)) if str(ROOT) in sys.path else None
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("podium", "tests")]:
        del sys.modules[name]
    options = ["-x", "-p", "no:randomly", "-p", "no:cacheprovider", "-W", _WARNED, f"--basetemp={tree / 'temporary'}"]
    if not all("::" in test for test in tests):  # a test that is named is run however slow it is
        options += ["-m", "not slow"]
    code = int(pytest.main([*options, *tests]))
    loaded = sys.modules.get("podium")
    if loaded and not Path(str(loaded.__file__)).is_relative_to(tree):
        return _NO_VERDICT
    return code
