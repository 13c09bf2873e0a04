"""Line charts as SVG, drawn by hand in a few elements, so that nothing has to be installed to look at a result. The
same data gives the same bytes: a chart changes in git only when a result does.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle

_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 20, 36, 48
_HEAD = 30  # of a picture with a title
_COLOURS = ("#1f618d", "#c0392b", "#1e8449", "#b9770e", "#7d3c98", "#566573", "#17a589")
_STYLE = (
    "text{font:12px system-ui,sans-serif;text-anchor:middle;fill:#222}.title{font-size:13px;font-weight:600}"
    ".head{font-size:15px;font-weight:600}"
    ".y{text-anchor:end}.key{text-anchor:start}.grid{stroke:#ddd}.line{fill:none;stroke-width:1.8}"
    ".dashed{stroke:#999;stroke-dasharray:5 4}circle{fill-opacity:.7}"
)


@dataclass(frozen=True)
class Axis:
    """What is written beside it, how its numbers are, and where it ends if not at the values."""

    label: str
    form: Callable[[float], str] = "{:g}".format
    log: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """x → the values there (several seeds, or one); the line goes through their means. A dashed one is a comparison."""

    label: str
    values: dict[float, Sequence[float]]
    dots: bool = True
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]


def draw(*panels: Panel, width: int = 640, height: int = 340, columns: int = 1, title: str = "") -> str:
    """The text of an SVG file; `width` and `height` are a panel's."""
    top = _HEAD if title else 0
    placed = []
    for k, panel in enumerate(panels):
        x, y = k % columns * width, top + k // columns * height
        placed.append(f'<g transform="translate({x},{y})">{_panel(panel, width, height)}</g>')
    whole = columns * width, top + -(-len(panels) // columns) * height
    size = f'width="{whole[0]}" height="{whole[1]}" viewBox="0 0 {whole[0]} {whole[1]}"'
    background = f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
    if title:
        background += f'<text class="head" x="{whole[0] / 2:g}" y="22">{escape(title)}</text>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{background}', *placed, "</svg>\n"])


def _panel(panel: Panel, width: int, height: int) -> str:
    right, bottom = width - _RIGHT, height - _BOTTOM
    xs = sorted({x for s in panel.series for x in s.values})
    ys = [y for s in panel.series for at in s.values.values() for y in at]
    low = min(ys) if panel.y.low is None else panel.y.low
    high = max(ys) if panel.y.high is None else panel.y.high
    y_ticks = ticks(low, high, panel.y.log)
    place_x = _scale(xs[0], xs[-1], _LEFT + 12, end=right - 12, log=panel.x.log)
    place_y = _scale(y_ticks[0], y_ticks[-1], bottom, end=_TOP, log=panel.y.log)
    parts = [
        f'<text class="title" x="{width / 2:g}" y="20">{escape(panel.title)}</text>',
        f'<text x="{(_LEFT + right) / 2:g}" y="{height - 12}">{escape(panel.x.label)}</text>',
        f'<text transform="translate(14,{(_TOP + bottom) / 2:g}) rotate(-90)">{escape(panel.y.label)}</text>',
    ]
    for y in y_ticks:
        parts.append(f'<path class="grid" d="M{_LEFT},{place_y(y)}H{right}"/>')
        parts.append(f'<text class="y" x="{_LEFT - 6}" y="{place_y(y) + 4:g}">{panel.y.form(y)}</text>')
    last = -math.inf
    for x in xs if len(xs) <= 12 else ticks(xs[0], xs[-1])[:-1]:
        if place_x(x) - last >= 34:  # else the numbers would touch
            last = place_x(x)
            parts.append(f'<text x="{last}" y="{bottom + 18}">{panel.x.form(x)}</text>')
    for s in panel.series:
        if s.dashed:
            parts.append(f'<path class="line dashed" d="{_path(s, place_x, place_y)}"/>')
    lines = list(zip([s for s in panel.series if not s.dashed], cycle(_COLOURS), strict=False))
    # The key stands in the corner that has the fewest values.
    points = [(place_x(x), place_y(y)) for s in panel.series for x, at in s.values.items() for y in at]
    corners = [(x, y) for y in (_TOP + 14, bottom - 16 * len(lines)) for x in (right - 150, _LEFT + 16)]
    key_x, key_y = min(
        corners, key=lambda c: sum(-20 < x - c[0] < 170 and abs(y - c[1] - 8 * len(lines)) < 40 for x, y in points)
    )
    for k, (s, colour) in enumerate(lines):
        parts.append(f'<path class="line" d="{_path(s, place_x, place_y)}" stroke="{colour}"/>')
        for x, y in [(at, value) for at in sorted(s.values) for value in s.values[at] if s.dots]:
            meaning = f"<title>{panel.x.form(x)} {escape(panel.x.label)}: {panel.y.form(y)}</title>"
            parts.append(f'<circle cx="{place_x(x)}" cy="{place_y(y)}" r="3" fill="{colour}">{meaning}</circle>')
        if len(lines) > 1:
            place = f'x="{key_x}" y="{key_y + 16 * k}"'
            parts.append(f'<text class="key" {place} style="fill:{colour}">— {escape(s.label)}</text>')
    return "\n".join(parts)


def _path(s: Series, place_x: Callable[[float], float], place_y: Callable[[float], float]) -> str:
    return "M" + " L".join(f"{place_x(x)},{place_y(sum(s.values[x]) / len(s.values[x]))}" for x in sorted(s.values))


def _scale(low: float, high: float, start: float, *, end: float, log: bool) -> Callable[[float], float]:
    """A function from [low, high] to pixels [start, end]."""
    bend: Callable[[float], float] = math.log if log else float
    span = bend(high) - bend(low) or 1.0
    return lambda value: round(start + (bend(value) - bend(low)) / span * (end - start), 1)


def ticks(low: float, high: float, log: bool = False) -> list[float]:
    """Round numbers that enclose low … high: 1, 2, 5, 10 on a log axis, four to eight equal steps on a linear one."""
    if log:
        tens = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
        every = [m * 10.0**e for e in tens for m in (1, 2, 5)]
        first = max(k for k, tick in enumerate(every) if tick <= low * 1.0001)
        last = min(k for k, tick in enumerate(every) if tick >= high * 0.9999)
        return every[first : max(last, first + 1) + 1]
    if high - low <= 1e-6 * abs(high):  # as good as one value
        high = low + (abs(low) or 1.0)
    rough = (high - low) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = unit * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough)
    start, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(start, max(end, start + 1) + 1)]
