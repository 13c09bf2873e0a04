"""Would the tests notice? Makes one small mistake after the other in a copy of the tree (a sign, a border, an exchanged
argument: `table.toml`), runs the tests that should notice it, and keeps the score. `make mutants` runs all of them that
have no verdict yet; `make mutants ONLY=torus` those of the files whose path contains the word.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.mutants.judge import ROOT, judge
from tests.mutants.score import Score
from tests.mutants.table import Mistake, read


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="mutants of the files whose path contains this")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no more mutants after so long")
    parser.add_argument(
        "--out", type=Path, help="keep the score in this JSON file; what has a verdict there is left out"
    )
    parser.add_argument("--check", action="store_true", help="only see whether the table fits the code")
    options = parser.parse_args()
    try:
        score = Score(read(ROOT), options.out)
        waiting = [mutant for mutant in score.open() if options.only in mutant.file]
        if options.check:
            print(f"{len(score.table)} mutants, each with its place in the code")
            return 0
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            verdicts = judge(waiting, Path(folder), at_once=options.at_once, minutes=options.minutes)
            for count, verdict in enumerate(verdicts, 1):
                score.add(verdict)
                word = "killed  " if verdict.killed_by else "SURVIVED"
                print(f"{count}/{len(waiting)} {word} {verdict.seconds:5.1f} s  {verdict.mutant}", flush=True)
    except Mistake as mistake:
        print(mistake, file=sys.stderr)
        return 2
    result = score.summary()
    print(f"{result['killed']} of {result['mutants']} killed ({result['share_killed']:.1%}); {len(score.open())} to go")
    return 1 if any(not mutant.why_it_may_live for mutant in score.survivors()) else 0


if __name__ == "__main__":
    sys.exit(main())
