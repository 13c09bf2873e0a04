"""A sweep as pictures: four panels in one SVG, and an HTML page with the picture and the table that opens without a
network. Drawn by hand in a few elements, so that nothing has to be installed to look at a plan.
"""

import html
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT = 430, 290  # of a panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 18, 34, 46
_LINE, _IDEAL, _GRID = "#1f618d", "#999", "#e4e7ea"
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#333}.title{font-size:13px;font-weight:600}"
    f".grid{{stroke:{_GRID}}}.line{{fill:none;stroke:{_LINE};stroke-width:2}}.dot{{fill:{_LINE}}}"
    f".ideal{{fill:none;stroke:{_IDEAL};stroke-dasharray:5 4}}"
)


def write(rows: Sequence[dict[str, Any]], directory: Path, title: str, command: str) -> list[Path]:
    """sweep.svg, sweep.html and sweep.json in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    picture = draw(rows)
    files = {
        "sweep.svg": picture,
        "sweep.html": _page(rows, picture, title, command),
        "sweep.json": json.dumps({"command": command, "rows": list(rows)}, indent=1) + "\n",
    }
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

    panels = [
        _panel("images/s (dashed: as many per chip as the first)", label, x, of("images_per_second"), _si, ideal),
        _panel("efficiency: images/s per chip against the first", label, x, of("efficiency"), _percent),
        _panel("communication's share of the step", label, x, of("communication_share"), _percent),
        _panel("minutes to train", label, x, of("train_minutes"), lambda v: f"{v:.3g}", log_y=True),
    ]
    placed = "".join(
        f'<g transform="translate({k % 2 * _WIDTH},{k // 2 * _HEIGHT})">{panel}</g>' for k, panel in enumerate(panels)
    )
    size = f'width="{2 * _WIDTH}" height="{2 * _HEIGHT}" viewBox="0 0 {2 * _WIDTH} {2 * _HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{placed}</svg>\n'
    )


def _panel(
    title: str,
    x_label: str,
    x: Sequence[float],
    y: Sequence[float],
    form: Callable[[float], str],
    ideal: Sequence[float] = (),
    log_y: bool = False,
) -> str:
    log_y = log_y or bool(ideal)
    scale_x = _scale(x, _LEFT, _WIDTH - _RIGHT, log=True)
    lows = [*y, *ideal] if log_y else [0.0, *y]
    top = max(lows) if log_y else (1.0 if form is _percent and max(y) > 0.5 else max(lows) * 1.15 or 1.0)
    ticks = _ticks(min(lows), top, log_y)
    scale_y = _scale([ticks[0], ticks[-1]], _HEIGHT - _BOTTOM, _TOP, log=log_y)
    parts = [f'<text class="title" x="{_LEFT}" y="18">{html.escape(title)}</text>']
    for tick in ticks:
        y_tick = scale_y(tick)
        parts.append(f'<path class="grid" d="M{_LEFT},{y_tick:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y_tick + 4:.1f}" text-anchor="end">{form(tick)}</text>')
    last = -math.inf
    for value in sorted(set(x)):
        if scale_x(value) - last >= 34:
            last = scale_x(value)
            parts.append(f'<text x="{last:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{_si(value)}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - _BOTTOM + 34}" text-anchor="middle">{x_label}</text>')
    if ideal:
        parts.append(f'<polyline class="ideal" points="{_points(x, ideal, scale_x, scale_y)}"/>')
    parts.append(f'<polyline class="line" points="{_points(x, y, scale_x, scale_y)}"/>')
    for a, b in zip(x, y, strict=True):
        parts.append(
            f'<circle class="dot" cx="{scale_x(a):.1f}" cy="{scale_y(b):.1f}" r="3.5">'
            f"<title>{_si(a)} {x_label}: {form(b)}</title></circle>"
        )
    return "".join(parts)


def _scale(values: Sequence[float], start: float, end: float, log: bool) -> Callable[[float], float]:
    of = math.log if log else float
    low, high = of(min(values)), of(max(values))
    span = high - low or 1.0
    return lambda value: start + (of(value) - low) / span * (end - start)


def _ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers that enclose low … high: 1, 2, 5, 10 on a log axis, four to eight equal steps on a linear one."""
    if log:
        every = [m * 10.0**e for e in range(-3, 13) for m in (1, 2, 5)]
        first = max(k for k, tick in enumerate(every) if tick <= low * 1.0001)
        last = min(k for k, tick in enumerate(every) if tick >= high * 0.9999)
        return every[first : max(last, first + 1) + 1]
    raw = (high - low) / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    return [low + k * step for k in range(math.ceil((high - low) / step - 1e-9) + 1)]


def _points(x: Sequence[float], y: Sequence[float], scale_x: Callable, scale_y: Callable) -> str:
    return " ".join(f"{scale_x(a):.1f},{scale_y(b):.1f}" for a, b in zip(x, y, strict=True))


def _si(value: float) -> str:
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{value * 100:.3g} %"


def _page(rows: Sequence[dict[str, Any]], picture: str, title: str, command: str) -> str:
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
