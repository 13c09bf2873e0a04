"""docs/benchmarks.md: how the ratios have moved, from every dated result that has some. Full measurements and the short
form of `podium bench all` stand apart, since their work differs.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from docs.figures.sentences import RESULTS, ROOT

from podium.bench import every
from podium.bench.every import Ratio
from podium.report import chart

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "benchmarks.svg"


class Measured(NamedTuple):
    file: Path
    commit: str
    machine: str
    ratios: dict[str, Ratio]

    @property
    def date(self) -> str:
        return self.file.name[:10]


def short(result: Any) -> dict[str, Ratio]:
    return {name: ratio for part in result["parts"].values() for name, ratio in part.get("ratios", {}).items()}


FULL: dict[str, tuple[str, Callable[[Any], dict[str, Ratio]]]] = {
    "step": ("step/*.json", every.step_ratios),
    "input": ("input/*.json", every.input_ratios),
    "pod": ("plan/*-pod-*.json", every.pod_ratios),
    "update": ("update/*.json", every.update_ratios),
    "allreduce": ("allreduce/*-100mbit.json", every.allreduce_ratios),
    "short": ("bench/*.json", short),
}
"""Of each table: the files of results/, and what gives their ratios."""


DRAWN = (
    ("step", "resnet7 / PyTorch eager"),
    ("step", "ResNet-50 / PyTorch eager"),
    ("input", "JPEG bytes / tf.data"),
)


def found(pattern: str, ratios: Callable[[Any], dict[str, Ratio]]) -> Iterator[Measured]:
    """The dated results with ratios, oldest first."""
    for file in sorted(RESULTS.glob(pattern)):
        try:
            result = json.loads(file.read_text())
            there = ratios(result)
        except (KeyError, TypeError, ValueError):  # of a script beside, or early and of another form
            continue
        machine = result.get("machine")
        known = machine if isinstance(machine, dict) else {}
        commit = str(result.get("commit") or known.get("commit") or "–").split()[0]
        isa = {"avx2": ", AVX2", "avx512": ", AVX-512"}.get(result.get("instructions") or "", "")
        processor = re.sub(r"\(R\)| Processor", "", known.get("processor", "–"))
        if there:
            yield Measured(file, commit, processor + isa, there)


def table(rows: list[Measured]) -> str:
    """Newest first; a column for each ratio that any of them has."""
    columns = list(dict.fromkeys(name for row in rows for name in row.ratios))
    lines = ["| result | commit | processor | " + " | ".join(columns) + " |", "|---|---|---|" + "---|" * len(columns)]
    for row in reversed(rows):
        link = f"[{row.file.stem}](../results/{row.file.parent.name}/{row.file.name})"
        cells = [_cell(row.ratios[name]) if name in row.ratios else "–" for name in columns]
        lines.append(f"| {' | '.join([link, row.commit, row.machine, *cells])} |")
    return "\n".join(lines)


def _cell(ratio: Ratio) -> str:
    if ratio["least"] == ratio["most"]:
        return f"{ratio['median']:.3f}"
    return f"{ratio['median']:.2f} ({ratio['least']:.2f}–{ratio['most']:.2f})"


def picture(rows: dict[str, list[Measured]]) -> str:
    """What matters most of step and input, oldest first, with a line for each make of processor."""
    panels = []
    for name, label in DRAWN:
        there = [row for row in rows[name] if label in row.ratios]
        makes = dict.fromkeys(row.machine.split(",")[0] for row in there)
        series = [chart.Series(make, _course(there, label, make)) for make in makes]
        panels.append(chart.Panel(label, chart.Axis("measurement"), chart.Axis("ratio", low=0), series))
    return chart.draw(*panels, height=240)


def _course(rows: list[Measured], label: str, make: str) -> dict[float, Sequence[float]]:
    numbered = enumerate(rows, start=1)
    return {n: [row.ratios[label]["median"]] for n, row in numbered if row.machine.split(",")[0] == make}


def redraw(page: str) -> tuple[str, str]:
    """The page with its tables, and the picture."""
    rows = {name: list(found(*where)) for name, where in FULL.items()}
    for name in FULL:
        drawn = table(rows[name]) if rows[name] else "Not measured yet."
        place = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = place.sub(lambda marks, drawn=drawn: f"{marks[1]}{drawn}\n{marks[2]}", page)  # type: ignore[misc]
    return page, picture(rows)
