"""The screenshots of docs/: pages of real runs, in Chromium.

    python docs/make_pictures.py RUN OTHER_RUN

The first run should have been evaluated (podium eval RUN). Needs Chromium.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.chromium import photographed

from podium.plan import page as plan_page
from podium.report.run_page import run_page

DOCS = Path(__file__).parent
SWEEP = DOCS.parent / "results" / "plan" / "sweep.json"


def main() -> None:
    runs = [Path(argument) for argument in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        sweep = json.loads(SWEEP.read_text())
        plan_page.write(sweep["rows"], work, title="resnet50-32k: v3:8x16 to v3:32x32", command=sweep["command"])
        (work / "run.html").write_text(run_page(runs[:1]))
        (work / "runs.html").write_text(run_page(runs))
        for name, dark, height in (("run", False, 2350), ("runs", True, 1500), ("sweep", False, 1640)):
            picture = photographed(work / f"{name}.html", work, dark=dark, height=height)
            out = DOCS / f"{'plan-sweep' if name == 'sweep' else f'report-{name}'}.webp"
            picture.resize((picture.width * 3 // 4, picture.height * 3 // 4)).save(out, "WEBP", quality=80)
            print(out)


main()
