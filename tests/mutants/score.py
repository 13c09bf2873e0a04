"""The score of all mutants, kept in one JSON file that grows: a verdict holds as long as the mutant's file and its
tests stay as they are, so a run that was ended early resumes."""

import hashlib
import json
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.mutants.judge import ROOT, Verdict
from tests.mutants.table import Mutant


def key(mutant: Mutant) -> str:
    """Of what a verdict depends on: the mistake, the file it is made in and the tests that should notice."""
    files = (mutant.file, *(test.partition("::")[0] for test in mutant.tests))
    parts = (mutant.old, mutant.new, *mutant.tests, *((ROOT / name).read_text() for name in files))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


class Score:
    def __init__(self, table: list[Mutant], file: Path | None) -> None:
        self.table, self.file = {key(mutant): mutant for mutant in table}, file
        kept = json.loads(file.read_text())["verdicts"] if file and file.exists() else {}
        self.killed_by: dict[str, str] = {k: verdict["killed_by"] for k, verdict in kept.items() if k in self.table}
        """The test that noticed a mutant; "" for one that survived."""

    def open(self) -> list[Mutant]:
        """The mutants without a verdict."""
        return [mutant for k, mutant in self.table.items() if k not in self.killed_by]

    def add(self, verdict: Verdict) -> None:
        self.killed_by[key(verdict.mutant)] = verdict.killed_by
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(self.summary(), indent=1, ensure_ascii=False) + "\n")

    def survivors(self) -> list[Mutant]:
        return [mutant for k, mutant in self.table.items() if self.killed_by.get(k) == ""]

    def summary(self) -> dict[str, Any]:
        command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
        commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        of_file: dict[str, list[bool]] = {}
        for k, mutant in self.table.items():
            of_file.setdefault(mutant.file, []).extend([bool(self.killed_by[k])] if k in self.killed_by else [])
        killed = sum(map(bool, self.killed_by.values()))
        return {
            "command": "make mutants",
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": commit,
            "python": sys.version.split()[0],
            "mutants_in_the_table": len(self.table),
            "mutants": len(self.killed_by),
            "killed": killed,
            "share_killed": round(killed / max(1, len(self.killed_by)), 4),
            "files": {name: {"mutants": len(all_of), "killed": sum(all_of)} for name, all_of in of_file.items()},
            "survivors": [asdict(mutant) for mutant in self.survivors()],
            "verdicts": {
                k: {"file": mutant.file, "old": mutant.old, "new": mutant.new, "killed_by": self.killed_by[k]}
                for k, mutant in self.table.items()
                if k in self.killed_by
            },
        }
