"""The doctor's report as a person reads it: a line for each finding, and below it what to do."""

from rich.console import Console
from rich.markup import escape

from podium.doctor.doctor import Report


def show(report: Report, console: Console) -> None:
    for finding in report.findings:
        line = f"[{finding.level}]●[/] [bold]{finding.point}[/]: {escape(finding.found)}"
        console.print(line, markup=True, highlight=False, soft_wrap=True)
        if finding.advice:
            console.print(f"  → {finding.advice}", markup=False, highlight=False, soft_wrap=True)
