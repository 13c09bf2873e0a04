"""A sweep as pictures: four panels in one SVG, and an HTML page with the picture and the table that opens without a
network.
"""

import html
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podium.host.files import reporting
from podium.report import chart

_WIDTH, _HEIGHT = 430, 290  # of a panel


def make_directory(directory: Path) -> None:
    """Called before the sweep, which takes minutes: they should not be lost to a place that cannot be written."""
    with reporting(directory, "give another --out"):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass


def write(rows: Sequence[dict[str, Any]], directory: Path, *, title: str, command: str) -> list[Path]:
    """sweep.svg, sweep.html and sweep.json in `directory`."""
    picture = draw(rows)
    files = {
        "sweep.svg": picture,
        "sweep.html": _page(rows, picture, title=title, command=command),
        "sweep.json": json.dumps({"command": command, "rows": list(rows)}, indent=1) + "\n",
    }
    with reporting(directory, "give another --out"):
        for name, text in files.items():
            (directory / name).write_text(text)
    return [directory / name for name in files]


def draw(rows: Sequence[dict[str, Any]]) -> str:
    """The four panels against chips, or against the batch where all rows have the same chips."""
    by = "batch_global" if len({row["chips"] for row in rows}) == 1 else "chips"
    x = [row[by] for row in rows]
    label = {"chips": "chips", "batch_global": "global batch"}[by]
    ideal = [rows[0]["images_per_second"] * row["chips"] / rows[0]["chips"] for row in rows]

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
    return chart.draw(*panels, width=_WIDTH, height=_HEIGHT, columns=2)


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


def _page(rows: Sequence[dict[str, Any]], picture: str, *, title: str, command: str) -> str:
    head = [
        "pod",
        "chips",
        "batch",
        "per core",
        "images/s",
        "efficiency",
        "communication",
        "minutes to train",
        "GiB per core",
        "limited by",
    ]
    body = "".join(
        "<tr>"
        + "".join(
            f"<td>{cell}</td>"
            for cell in (
                row["topology"],
                f"{row['chips']:,}",
                f"{row['batch_global']:,}",
                row["batch_per_core"],
                f"{row['images_per_second']:,.0f}",
                f"{row['efficiency']:.0%}",
                f"{row['communication_share']:.1%}",
                f"{row['train_minutes']:.2f}",
                f"{row['memory_bytes_per_core'] / 2**30:.2f}{'' if row['fits'] else ' (too much)'}",
                row["limit"],
            )
        )
        + f"<td>{row['compute_origin']}</td></tr>"
        for row in rows
    )
    style = (
        "body{font:15px system-ui,sans-serif;max-width:900px;margin:2em auto;color:#222}table{border-collapse:collapse}"
        "td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right}"
        "td:first-child,th:first-child{text-align:left}"
        "code{background:#f3f4f6;padding:.1em .3em}"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{style}</style>"
        f"<h1>{html.escape(title)}</h1><p><code>{html.escape(command)}</code></p>{picture}"
        f"<table><tr>{''.join(f'<th>{name}</th>' for name in [*head, 'compute is'])}</tr>{body}</table>"
        "<p>Throughput and times are modelled; compute is compiled by libtpu or modelled from counted work, "
        "as its column says; memory bandwidth, links and hops are published or assumed figures.</p></html>\n"
    )
