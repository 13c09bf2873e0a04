"""Would the tests notice? Makes one small mistake after the other in a copy of the tree (a sign, a border, an exchanged
argument: `table.toml`), runs the tests that should notice it, and keeps the score. `make mutants` runs all of them;
`make mutants ONLY=torus` those of the files whose path contains the word.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.mutants.judge import ROOT, Verdict, judge
from tests.mutants.table import Mistake, read


def score(verdicts: list[Verdict]) -> dict[str, object]:
    command = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    killed = sum(verdict.killed for verdict in verdicts)
    files = sorted({verdict.mutant.file for verdict in verdicts})
    of_file = {name: [v.killed for v in verdicts if v.mutant.file == name] for name in files}
    return {
        "command": "make mutants",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "python": sys.version.split()[0],
        "mutants": len(verdicts),
        "killed": killed,
        "share_killed": round(killed / len(verdicts), 4),
        "files": {name: {"mutants": len(all_of), "killed": sum(all_of)} for name, all_of in of_file.items()},
        "survivors": [asdict(verdict.mutant) for verdict in verdicts if not verdict.killed],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="mutants of the files whose path contains this")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="keep the score in this JSON file")
    parser.add_argument("--check", action="store_true", help="only see whether the table fits the code")
    options = parser.parse_args()
    verdicts = []
    try:
        mutants = read(ROOT, options.only)
        if options.check:
            print(f"{len(mutants)} mutants, each with its place in the code")
            return 0
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            for verdict in judge(mutants, Path(folder), options.at_once):
                verdicts.append(verdict)
                word = "killed  " if verdict.killed else "SURVIVED"
                print(f"{len(verdicts)}/{len(mutants)} {word} {verdict.seconds:5.1f} s  {verdict.mutant}", flush=True)
    except Mistake as mistake:
        print(mistake, file=sys.stderr)
        return 2
    result = score(verdicts)
    print(f"{result['killed']} of {result['mutants']} killed ({result['share_killed']:.1%})")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return 1 if any(not v.killed and not v.mutant.why_it_may_live for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
