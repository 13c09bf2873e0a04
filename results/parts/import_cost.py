"""What it costs to import each part of docs/parts.md alone: CPU time and memory of a fresh process, beyond those of an
empty one; the median of five.

    python results/parts/import_cost.py results/parts/2026-11-18-imports.json [PART…]

With names of parts only those are measured, and added to what the file has.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from podium.bench.timing import machine

PARTS = {
    "DistributedBatchNorm": "from podium import DistributedBatchNorm",
    "Loader": "from podium import Loader",
    "NumpyLoader": "from podium import NumpyLoader",
    "decode": "import podium.data.decode",
    "reduce": "import podium.reduce",
    "lars": "from podium import lars",
    "machines": "import podium.plan.machines",
    "planner": "import podium.plan.plan",
}
MEASURE = "import resource; u = resource.getrusage(resource.RUSAGE_SELF); print(u.ru_utime + u.ru_stime, u.ru_maxrss)"


def cost(statement: str) -> tuple[float, float]:
    """CPU seconds and MB."""
    runs = [
        subprocess.run([sys.executable, "-c", f"{statement}; {MEASURE}"], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    seconds, kilobytes = zip(*(map(float, run.stdout.split()) for run in runs), strict=True)
    return statistics.median(seconds), statistics.median(kilobytes) / 1000


if __name__ == "__main__":
    file, names = Path(sys.argv[1]), sys.argv[2:] or list(PARTS)
    here = machine("jax", "flax", "optax", "numpy", "pyarrow")
    result = {"command": "python results/parts/import_cost.py", "machine": here, "parts": {}}
    if sys.argv[2:]:
        result = json.loads(file.read_text())
    empty = cost("pass")
    for part in names:
        seconds, megabytes = cost(PARTS[part])
        figures = {"cpu_seconds": round(seconds - empty[0], 2), "memory_mb": round(megabytes - empty[1])}
        result["parts"][part] = figures | ({"commit": here["commit"]} if sys.argv[2:] else {})
    file.write_text(json.dumps(result, indent=1) + "\n")
