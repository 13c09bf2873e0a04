"""Files of each kind that Podium reads, changed at random, 10,000 each: read in a process of its own that has 10 s for
a file and 2 GiB of memory beyond what it starts with. Counts how each ended: read, refused in one line, or badly.
Prints JSON.

    python results/damage/mutants.py [--count 10000] [--seed 0]
"""

import argparse
import collections
import json
import platform
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.mutated import KINDS, mutant, read, sound

from podium.errors import UserError

_SECONDS_MAX = 10
_MEMORY_MAX = 2 * 2**30


def work(kind: str, seed: int, count: int, results: Connection) -> None:
    """Sends how each mutant ended; a signal or a crash ends this process, and the parent sees which mutant it was."""
    with tempfile.TemporaryDirectory() as folder:
        content = sound(kind, Path(folder))
        read(kind, content, Path(folder) / "warm")
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY_MAX, used + _MEMORY_MAX))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for number in range(count):
            changed = mutant(kind, content, random.Random(f"{seed}/{kind}/{number}"))
            signal.alarm(_SECONDS_MAX)
            try:
                read(kind, changed, Path(folder) / "mutant")
                results.send("read, bad parts refused by name")
            except UserError:
                results.send("refused in one line")
            except Exception as error:
                results.send(f"{type(error).__name__} in mutant {number}: {str(error)[:100]}")
            signal.alarm(0)
    results.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def tried(kind: str, seed: int, count: int) -> dict[str, object]:
    ends: collections.Counter[str] = collections.Counter()
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=work, args=(kind, seed, count, sending))
    process.start()
    sending.close()
    peak = 0
    try:
        while isinstance(result := receiving.recv(), str):
            ends[result] += 1
        peak = result
    except EOFError:
        process.join()
        ends[f"exit code {process.exitcode} in mutant {ends.total()}"] += 1
    process.join()
    return {"mutants": ends.total(), "ends": dict(ends.most_common()), "peak_memory_mb": round(peak / 2**20)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    began = time.monotonic()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    about = {
        "command": f"python results/damage/mutants.py --count {arguments.count} --seed {arguments.seed}",
        "commit": commit,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "kinds": {kind: tried(kind, arguments.seed, arguments.count) for kind in KINDS},
    }
    print(json.dumps({**about, "seconds": round(time.monotonic() - began)}, indent=1))


if __name__ == "__main__":
    main()
