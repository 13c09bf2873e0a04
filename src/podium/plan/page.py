"""A sweep as pictures: four panels in one SVG, and an HTML page with charts, a table and what lowers efficiency. Both
open without a network.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podium.host.files import reporting
from podium.report import chart
from podium.report.page import Chart, Line, Page

_WIDTH, _HEIGHT = 430, 290  # of a panel


def make_directory(directory: Path) -> None:
    """Called before the sweep, which takes minutes: they should not be lost to a place that cannot be written."""
    with reporting(directory, "give another --out"):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass


def write(rows: Sequence[dict[str, Any]], directory: Path, *, title: str, command: str) -> list[Path]:
    """sweep.svg, sweep.html and sweep.json in `directory`."""
    files = {
        "sweep.svg": draw(rows, title),
        "sweep.html": _page(rows, title=title, command=command),
        "sweep.json": json.dumps({"command": command, "rows": list(rows)}, indent=1) + "\n",
    }
    with reporting(directory, "give another --out"):
        for name, text in files.items():
            (directory / name).write_text(text)
    return [directory / name for name in files]


def draw(rows: Sequence[dict[str, Any]], title: str = "") -> str:
    """The four panels against chips, or against the batch where all rows have the same chips."""
    label, x = _along(rows)
    ideal = _ideal(rows)

    def of(key: str) -> list[float]:
        return [row[key] for row in rows]

    def panel(title: str, y: chart.Axis, key: str, *others: chart.Series) -> chart.Panel:
        line = chart.Series(key, {n: [value] for n, value in zip(x, of(key), strict=True)})
        return chart.Panel(title, chart.Axis(label, _si, log=True), y, [line, *others])

    as_first = chart.Series("as the first", {n: [value] for n, value in zip(x, ideal, strict=True)}, dashed=True)
    panels = [
        panel(
            "images/s (dashed: as many per chip as the first)",
            chart.Axis("", _si, log=True),
            "images_per_second",
            as_first,
        ),
        panel("efficiency: images/s per chip against the first", _share(of("efficiency")), "efficiency"),
        panel("communication's share of the step", _share(of("communication_share")), "communication_share"),
        panel("minutes to train", chart.Axis("", "{:.3g}".format, log=True), "train_minutes"),
    ]
    head = f"{title}{', ' if title else ''}modelled, not measured"
    return chart.draw(*panels, width=_WIDTH, height=_HEIGHT, columns=2, title=head)


def _along(rows: Sequence[dict[str, Any]]) -> tuple[str, list[float]]:
    """What the rows differ by, in words, and its values."""
    by = "batch_global" if len({row["chips"] for row in rows}) == 1 else "chips"
    return {"chips": "chips", "batch_global": "global batch"}[by], [row[by] for row in rows]


def _ideal(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Images/s if every chip did as many as those of the first row."""
    return [rows[0]["images_per_second"] * row["chips"] / rows[0]["chips"] for row in rows]


def _share(values: Sequence[float]) -> chart.Axis:
    """From nothing to all, or to a little above the largest where all would leave the line on the floor."""
    return chart.Axis("", _percent, low=0.0, high=1.0 if max(values) > 0.5 else max(values) * 1.15 or 1.0)


def _si(value: float) -> str:
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{value * 100:.3g} %"


_COLUMNS = (
    "pod", "chips", "batch", "per core", "images/s", "efficiency", "communication", "minutes to train", "GiB per core",
    "limited by", "compute is",
)  # fmt: skip


def _page(rows: Sequence[dict[str, Any]], *, title: str, command: str) -> str:
    label, x = _along(rows)

    def of(key: str) -> list[float]:
        return [row[key] for row in rows]

    page = Page(f"{title} (modelled)")
    page.code(command)
    page.text(
        "Modelled, not measured: compute is compiled by libtpu or modelled from counted work, as its column says; "
        "memory bandwidth, links and hops are published or assumed figures.",
        quiet=True,
    )
    rate = [Line("images/s", x, of("images_per_second")), Line("as many per chip as the first", x, _ideal(rows), True)]
    page.charts(
        [
            Chart("Images/s", label, "", rate, log_x=True, log_y=True),
            Chart("Efficiency", label, "", [Line("per chip against the first", x, of("efficiency"))], "percent",
                  log_x=True, range=(0, max(1.0, *of("efficiency")))),
            Chart("Time of a step", label, "ms", _parts(rows, x), log_x=True),
            Chart("Minutes to train", label, "", [Line("minutes", x, of("train_minutes"))], log_x=True, log_y=True),
        ]
    )  # fmt: skip
    page.heading("What lowers efficiency")
    for line in explain(rows):
        page.text(line)
    page.heading("All figures")
    page.table(_COLUMNS, [_cells(row) for row in rows], (0, 9, 10))
    return page.html()


def _parts(rows: Sequence[dict[str, Any]], x: list[float]) -> list[Line]:
    """What a step's time consists of, a line for each part."""
    names = dict.fromkeys(part["name"] for row in rows for part in row.get("parts", ()))
    times = [{part["name"]: 1e3 * part["seconds"] for part in row.get("parts", ())} for row in rows]
    return [Line(name, x, [of_row.get(name, 0.0) for of_row in times]) for name in names]


def explain(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Where the last row's chips lose against the first's, in sentences."""
    first, last = rows[0], rows[-1]
    lost = 1 - last["efficiency"]
    if lost <= 0.005:
        return [f"Nothing: a chip of {last['topology']} does as much as one of {first['topology']}."]
    told = [
        f"A chip of {last['topology']} does {last['efficiency']:.0%} of the work of one of {first['topology']}, with "
        f"{last['batch_per_core']} images per core instead of {first['batch_per_core']}."
    ]
    images = [row["batch_global"] / row["chips"] for row in (first, last)]
    before, after = (
        {part["name"]: part["seconds"] / n for part in row.get("parts", ())}
        for row, n in zip((first, last), images, strict=True)
    )
    grown = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    total = sum(change for change in grown.values() if change > 0)
    for name, change in sorted(grown.items(), key=lambda item: -item[1]):
        if total and change / total > 0.05:
            told.append(f"{change / total:.0%} of the loss is {name}{_WHY.get(name, '')}")
    return told


_WHY = {
    "compute": ": small batches leave a chip's matrix unit partly idle, and each operation has a fixed cost.",
    "gradient summation": ": as many bytes on every pod, over longer rings, but fewer images to share them.",
    "weight update": ": the same for all weights whatever the batch, shared by fewer images.",
    "batch-norm exchange": ": neighbouring chips wait for each other's statistics in every layer.",
}


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["topology"],
        f"{row['chips']:,}",
        f"{row['batch_global']:,}",
        f"{row['batch_per_core']}",
        f"{row['images_per_second']:,.0f}",
        f"{row['efficiency']:.0%}",
        f"{row['communication_share']:.1%}",
        f"{row['train_minutes']:.2f}",
        f"{row['memory_bytes_per_core'] / 2**30:.2f}{'' if row['fits'] else ' (too much)'}",
        row["limit"],
        row["compute_origin"],
    ]
