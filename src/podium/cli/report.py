"""What `podium report` does."""

from pathlib import Path
from typing import Any

from podium.cli.arguments.report import Report
from podium.host.files import reporting, write_atomic
from podium.report.run_page import run_page


def report(command: Report) -> dict[str, Any]:
    page = run_page(command.runs)
    out = command.out or (command.runs[0] / "report.html" if len(command.runs) == 1 else Path("report.html"))
    with reporting(out, "choose a different --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, page)
    if not command.json:
        print(f"{out}: {len(page.encode()) / 1e3:.0f} kB, opens in any browser")
    return {"out": str(out), "runs": [str(run) for run in command.runs]}
