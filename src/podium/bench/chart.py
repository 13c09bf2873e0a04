"""A line chart as SVG, for results: points with their spread, lines by series, an axis that may be logarithmic. The
same data gives the same bytes, so a chart changes in git only when a result does.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 20, 40, 52
_COLOURS = ("#1f618d", "#c0392b", "#1e8449", "#b9770e", "#7d3c98", "#566573", "#17a589")


@dataclass(frozen=True)
class Series:
    """x → the values there (several seeds, or one); the line goes through their means."""

    label: str
    values: dict[float, Sequence[float]]
    dots: bool = True


def draw(title: str, x_label: str, y_label: str, series: Sequence[Series], *, log_x: bool = False) -> str:
    """The chart, as the text of an SVG file."""
    xs = sorted({x for s in series for x in s.values})
    ys = [y for s in series for at in s.values.values() for y in at]
    ticks = _ticks(min(ys), max(ys))
    place_x = _scale(xs[0], xs[-1], _LEFT + 14, _WIDTH - _RIGHT - 14, math.log2 if log_x else float)
    place_y = _scale(ticks[0], ticks[-1], _HEIGHT - _BOTTOM, _TOP, float)
    parts = [_opening(title, x_label, y_label)]
    for y in ticks:
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{place_y(y)}" y2="{place_y(y)}"/>')
        parts.append(f'<text class="y" x="{_LEFT - 6}" y="{place_y(y) + 4:g}">{y:g}</text>')
    for x in xs if len(xs) <= 12 else _ticks(xs[0], xs[-1])[:-1]:
        parts.append(f'<text x="{place_x(x)}" y="{_HEIGHT - _BOTTOM + 18}">{x:g}</text>')
    for number, s in enumerate(series):
        parts += _line(s, _COLOURS[number % len(_COLOURS)], place_x, place_y)
    return "\n".join([*parts, _legend(series), "</svg>\n"])


def _opening(title: str, x_label: str, y_label: str) -> str:
    style = (
        "text{font:12px sans-serif;text-anchor:middle;fill:#222}.title{font-size:14px;font-weight:bold}"
        ".y{text-anchor:end}.key{text-anchor:start}.grid{stroke:#ddd}path{fill:none;stroke-width:1.8}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}"><style>{style}</style><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>'
        f'<text class="title" x="{_WIDTH / 2:g}" y="20">{escape(title)}</text>'
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:g}" y="{_HEIGHT - 12}">{escape(x_label)}</text>'
        f'<text transform="translate(16,{_HEIGHT / 2:g}) rotate(-90)">{escape(y_label)}</text>'
    )


def _line(s: Series, colour: str, place_x: Callable[[float], float], place_y: Callable[[float], float]) -> list[str]:
    at = sorted(s.values)
    means = " L".join(f"{place_x(x)},{place_y(sum(s.values[x]) / len(s.values[x]))}" for x in at)
    dots = [
        f'<circle cx="{place_x(x)}" cy="{place_y(y)}" r="3" fill="{colour}" fill-opacity="0.6"/>'
        for x in at
        for y in s.values[x]
        if s.dots
    ]
    return [f'<path d="M{means}" stroke="{colour}"/>', *dots]


def _legend(series: Sequence[Series]) -> str:
    if len(series) == 1:
        return ""
    keys = [
        f'<text class="key" x="{_WIDTH - _RIGHT - 150}" y="{_TOP + 14 + 16 * k}" '
        f'style="fill:{_COLOURS[k % len(_COLOURS)]}">— {escape(s.label)}</text>'
        for k, s in enumerate(series)
    ]
    return "\n".join(keys)


def _scale(
    low: float, high: float, start: float, end: float, bend: Callable[[float], float]
) -> Callable[[float], float]:
    """A function from [low, high] to pixels [start, end]."""
    span = bend(high) - bend(low) or 1.0
    return lambda value: round(start + (bend(value) - bend(low)) / span * (end - start), 1)


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers that reach from below `low` to above `high`."""
    rough = (high - low or abs(high) or 1.0) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = unit * next(factor for factor in (1, 2, 5, 10) if factor * unit >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(k * step, 10) for k in range(first, max(last, first + 1) + 1)]
