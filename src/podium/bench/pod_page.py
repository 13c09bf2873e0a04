"""What `podium bench pod` shows: tables for the terminal, and an HTML page with a picture, which opens offline."""

import html
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from podium.bench.pod import BYTES_PER_CYCLE
from podium.host.files import reporting
from podium.plan.operations import GROUPS
from podium.report import chart

_STYLE = (
    "body{font:15px system-ui,sans-serif;max-width:1000px;margin:2em auto;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}code{background:#f3f4f6;padding:.1em .3em}"
)
_TOTALS = (
    "program",
    "images",
    "priced",
    "unpriced MB",
    "M cycles",
    "of lars",
    "M an image",
    "GB",
    "of peak",
    "collectives",
    "GiB held",
)


def show(result: dict[str, Any], console: Console) -> None:
    """Totals, groups, the dearest operations of Podium's step, and what has no price."""
    console.print(f"[bold]{result['topology']}[/]: one core's step, batch norm over {result['norm_span']}")
    for head, cells in _tables(result):
        table = Table(*head, box=None, padding=(0, 1))
        for column in table.columns[1:]:
            column.justify = "right"
        for row in cells:
            table.add_row(*row)
        console.print(table)
    console.print(_note(result), style="dim", highlight=False)


def write(result: dict[str, Any], file: Path, *, command: str) -> None:
    """The page, with the command that made it."""
    tables = "".join(
        f"<table>{_line('th', head)}{''.join(_line('td', row) for row in rows)}</table>"
        for head, rows in _tables(result)
    )
    title = f"A training step on {result['topology']}"
    text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1><p><code>{html.escape(command)}</code></p>"
        f"{draw(result['rows'])}{tables}<p>{html.escape(_note(result))}</p></html>\n"
    )
    with reporting(file, "give a different --out"):
        file.write_text(text)


def draw(rows: list[dict[str, Any]]) -> str:
    """Cycles of an image against images a core, a line for each program."""
    lines = [
        chart.Series(
            name,
            {row["images_per_core"]: [row["cycles_per_image"] / 1e6] for row in rows if row["program"] == name},
        )
        for name in dict.fromkeys(row["program"] for row in rows)
    ]
    panel = chart.Panel(
        "million cycles an image", chart.Axis("images a core", log=True), chart.Axis("", "{:.3g}".format), lines
    )
    return chart.draw(panel)


def _tables(result: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """(head, rows) of every table, as text."""
    rows = result["rows"]
    yield _TOTALS, [_totals(row) for row in rows]
    names = tuple(f"{row['program']}, {row['images_per_core']}" for row in rows)
    yield (
        ("M cycles by group", *names),
        [(group, *(f"{row['groups'][group] / 1e6:.2f}" for row in rows)) for group in GROUPS],
    )
    if any(row["under_collectives"] for row in rows):
        yield (
            ("of those, while a collective runs", *names),
            [(g, *(f"{row['under_collectives'].get(g, 0) / 1e6:.2f}" for row in rows)) for g in GROUPS],
        )
    for row, name in zip(rows, names, strict=True):
        yield (
            (f"dearest of {name}", "k cycles", "MB", "shape"),
            [(op["of"], f"{op['cycles'] / 1e3:.0f}", f"{op['bytes'] / 1e6:.1f}", op["shape"]) for op in row["dearest"]],
        )
        yield (
            (f"without a price in {name}", "times", "MB", "shape"),
            [(op["of"], f"{op['count']}", f"{op['bytes'] / 1e6:.1f}", op["shape"]) for op in row["unpriced"]],
        )


def _totals(row: dict[str, Any]) -> tuple[str, ...]:
    ratio, share = row["to_lars"], row["share_of_peak"]
    return (
        row["program"],
        f"{row['images_per_core']}",
        f"{row['cycles'] / 1e6:.2f}",
        f"{row['unpriced_bytes'] / 1e6:.0f}",
        f"{row['whole_cycles'] / 1e6:.2f}",
        "–" if ratio is None else f"{ratio:.1%}",
        f"{row['cycles_per_image'] / 1e6:.3f}",
        f"{row['bytes_accessed'] / 1e9:.2f}",
        "–" if share is None else f"{share:.1%}",
        ", ".join(f"{of['count']} {kind} {of['bytes'] / 1e6:.1f} MB" for kind, of in row["collectives"].items()),
        f"{row['memory_bytes'] / 2**30:.2f}",
    )


def _note(result: dict[str, Any]) -> str:
    made_with = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        "cycles: the TPU compiler's estimates for one core (priced), collectives left out, and a cycle for every "
        f"{BYTES_PER_CYCLE} bytes of operations that it leaves without one; {made_with}"
    )


def _line(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"
