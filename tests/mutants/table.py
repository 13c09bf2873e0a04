"""The table of mutants, held against the code: an old text that is not there, or is there twice, ends with its name."""

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why_it_may_live: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.old!r} → {self.new!r}"


class Mistake(Exception):
    """The table and the code do not agree, or the tests fail without a mutant."""


def read(root: Path) -> list[Mutant]:
    modules = tomllib.loads((root / "tests/mutants/table.toml").read_text())["module"]
    mutants = [
        Mutant(module["file"], changes[0], changes[1], tuple(module["tests"]), "".join(changes[2:]))
        for module in modules
        for changes in module["mutants"]
    ]
    found = [_lost(root, mutant) for mutant in mutants]
    if lost := [line for line in found if line]:
        raise Mistake("tests/mutants/table.toml no longer fits the code:\n  " + "\n  ".join(lost))
    return mutants


def _lost(root: Path, mutant: Mutant) -> str:
    """What is wrong with a mutant's place, if anything is."""
    for name in (mutant.file, *(test.partition("::")[0] for test in mutant.tests)):
        if not (root / name).is_file():
            return f"{mutant}: there is no {name}"
    count = (root / mutant.file).read_text().count(mutant.old)
    return "" if count == 1 else f"{mutant}: the old text stands there {count} times, not once"
