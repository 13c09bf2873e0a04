"""How long `podium prepare` takes for small sources, start of Python and sync to the disk included.

    python results/prepare/small.py --rounds 5 \\
        "cifar10-train.parquet --validation cifar10-test.parquet" imagenet-1000.tar > results/prepare/small.json

Each argument is a source, with options where it needs some; all take turns.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from podium.bench import timing


def prepare(source: str) -> tuple[dict, float]:
    """The report, and the seconds of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        name, *options = shlex.split(source)
        command = [sys.executable, "-m", "podium", "prepare", name, f"{folder}/out", *options, "--json"]
        began = time.perf_counter()
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return json.loads(output.splitlines()[-1]), time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("sources", nargs="+")
    given = parser.parse_args()
    measured: dict[str, list[tuple[dict, float]]] = {source: [] for source in given.sources}
    for _ in range(given.rounds):
        for source in given.sources:
            measured[source].append(prepare(source))
    result = [
        {
            "source": " ".join(Path(part).name for part in shlex.split(source)),
            "images": runs[0][0]["images"],
            "command_seconds": timing.spread([round(seconds, 3) for _, seconds in runs]),
            "report_seconds": timing.spread([report["seconds"] for report, _ in runs]),
        }
        for source, runs in measured.items()
    ]
    print(json.dumps({"sources": result, "rounds": given.rounds, "machine": timing.machine("pyarrow")}, indent=1))


if __name__ == "__main__":
    main()
