"""Pages of HTML that open without a network, in light and dark, on any screen: text, tables, pictures and charts, each
made by one small function. Charts are drawn by uPlot, which the page embeds with its data; nothing is fetched, and the
page's own policy forbids it.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from importlib import resources
from typing import Any, Literal

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@dataclass(frozen=True)
class Line:
    """One line of a chart: numbers ascending in x."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    title: str
    x: str
    """What the axis is called."""
    y: str
    series: Sequence[Line]
    format: Literal["number", "percent"] = "number"
    log_x: bool = False
    log_y: bool = False
    range: tuple[float, float] | None = None
    """Ends of the y axis; None: what the values need."""
    note: str = ""


@dataclass
class Page:
    """Collects its parts in order; `html` gives the whole file."""

    title: str
    _parts: list[str] = field(default_factory=list)
    _charts: list[Chart] = field(default_factory=list)

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str, quiet: bool = False) -> None:
        self._parts.append(f"<p{' class=quiet' if quiet else ''}>{escape(text)}</p>")

    def code(self, text: str) -> None:
        self._parts.append(f"<p><code>{escape(text)}</code></p>")

    def cards(self, cards: Sequence[tuple[str, str]]) -> None:
        """(figure, what it is) side by side."""
        inside = "".join(f"<div class=card><b>{escape(a)}</b><span>{escape(b)}</span></div>" for a, b in cards)
        self._parts.append(f"<div class=cards>{inside}</div>")

    def charts(self, charts: Sequence[Chart]) -> None:
        places = []
        for chart in charts:
            if any(len(line.x) for line in chart.series):
                note = f"<p class=quiet>{escape(chart.note)}</p>" if chart.note else ""
                plot = f'<div class=plot data-chart="{len(self._charts)}"></div>'
                places.append(f"<div class=chart><h3>{escape(chart.title)}</h3>{note}{plot}</div>")
                self._charts.append(chart)
        self._parts.append(f"<div class=charts>{''.join(places)}</div>")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Any]], text_columns: Sequence[int] = (0,)) -> None:
        def cell(tag: str, column: int, content: Any) -> str:
            return f"<{tag}{' class=text' if column in text_columns else ''}>{escape(str(content))}</{tag}>"

        lines = ["".join(cell("td", k, content) for k, content in enumerate(row)) for row in rows]
        first = "".join(cell("th", k, name) for k, name in enumerate(head))
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        self._parts.append(f"<div class=scroll><table><tr>{first}</tr>{body}</table></div>")

    def confusion(self, names: Sequence[str], counts: Sequence[Sequence[int]]) -> None:
        """Rows are classes, columns answers; the darker, the larger the share of the row."""
        head = "".join(f"<th class=answer>{escape(name)}</th>" for name in names)
        rows = []
        for label, row in enumerate(counts):
            total = max(1, sum(row))
            cells = "".join(_confusion_cell(names[label], names[k], n, share=n / total) for k, n in enumerate(row))
            rows.append(f"<tr><th>{escape(names[label])}</th>{cells}</tr>")
        self._parts.append(
            f"<div class=scroll><table class=confusion><tr><th></th>{head}</tr>{''.join(rows)}</table></div>"
        )

    def picture(self, content: bytes, kind: str, description: str) -> None:
        data = base64.b64encode(content).decode()
        self._parts.append(f'<img class=sheet alt="{escape(description)}" src="data:image/{kind};base64,{data}">')

    def folded(self, title: str) -> None:
        """Everything up to `end_folded` shows when its title is clicked."""
        self._parts.append(f"<details><summary>{escape(title)}</summary>")

    def end_folded(self) -> None:
        self._parts.append("</details>")

    def html(self) -> str:
        data = json.dumps([asdict(chart) for chart in self._charts]).replace("<", "\\u003c")
        style, script = _asset("uPlot.min.css") + _asset("page.css"), _asset("page.js")
        return "\n".join(
            [
                '<!doctype html><html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
                f"<title>{escape(self.title)}</title><style>{style}</style></head><body>",
                f"<h1>{escape(self.title)}</h1>",
                *self._parts,
                f'<script type="application/json" id="charts">{data}</script>',
                f"<script>{_asset('uPlot.iife.min.js')}</script><script>{script}</script>",
                "</body></html>\n",
            ]
        )


def _confusion_cell(name: str, answer: str, count: int, *, share: float) -> str:
    kind = ("right" if name == answer else "wrong") + (" full" if share > 0.5 else "")
    meaning = f"{escape(name)} taken for {escape(answer)}: {count}"
    return f'<td class="{kind}" style="--share:{100 * share:.0f}" title="{meaning}">{count or ""}</td>'


def _asset(name: str) -> str:
    return (resources.files("podium") / "report" / "assets" / name).read_text(encoding="utf-8")
