"""Draws a schedule as an SVG that moves: tick by tick who sends to whom, in the colour of its route, and below how many
links are at work at each tick. It reads the tables that run. `python -m podium.reduce.moving docs` writes the three of
docs/torus.md: a square torus, an oblong one and one with a hole."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from podium.reduce.colours import torus_routes
from podium.reduce.routes import Route, Tick
from podium.reduce.woven import Woven, living_nodes, neighbours, weave

_APART, _MARGIN = 70, 56  # pixels
_BAR, _CHART = 9, 60
_TICK_SECONDS = 0.9
_COLOURS = ("#c0392b", "#e08a3c", "#1f618d", "#4aa3d0")  # of the routes; both directions of a colour are alike
_RADIUS = 10


@dataclass(frozen=True)
class Drawn:
    """A schedule to draw: its routes over what is left of a torus."""

    title: str
    torus: Woven
    routes: Sequence[Route]

    def ticks(self) -> list[tuple[Tick, ...]]:
        """Those of the reduce-scatter; the all-gather is the same backwards."""
        return list(zip(*(route.ticks for route in self.routes), strict=True))

    def links_at_work(self) -> list[float]:
        """The share of all links, each counted in both directions, that carry something at each tick."""
        links = np.count_nonzero(neighbours(self.torus) >= 0)
        used = [{(node, int(to)) for tick in together for node, to in enumerate(tick.to) if to >= 0}
                for together in self.ticks()]  # fmt: skip
        return [len(pairs) / links for pairs in used]


FILES = {
    "torus-moving-4x4.svg": lambda: Drawn("4×4, two colours", Woven((4, 4)), torus_routes(4, 4)),
    "torus-moving-2x8.svg": lambda: Drawn("2×8, woven", Woven((2, 8)), weave(Woven((2, 8)))),
    "torus-moving-hole.svg": lambda: Drawn(
        "4×4 without host 5, woven", Woven((4, 4), (5,)), weave(Woven((4, 4), (5,)))
    ),
}


def draw(drawn: Drawn) -> str:
    """The text of an SVG file."""
    rows, cols = drawn.torus.shape
    ticks, share = drawn.ticks(), drawn.links_at_work()
    count = len(ticks)
    width = max((cols - 1) * _APART + 2 * _MARGIN, count * _BAR + 2 * _MARGIN, 300)
    left = (width - (cols - 1) * _APART) / 2
    below = 34 + (rows - 1) * _APART + 2 * _MARGIN
    places = np.stack(np.divmod(living_nodes(drawn.torus), cols))[::-1].T * float(_APART) + (left, 34 + _MARGIN)
    parts = [f'<text x="{width / 2:g}" y="18" class="title">{drawn.title}: reduce-scatter in {count} ticks</text>']
    for number, together in enumerate(ticks):
        paths = "".join(_path(route, tick, places) for route, tick in enumerate(together))
        label = f'<text x="{width / 2:g}" y="36">tick {number + 1}: {share[number]:.0%} of the links at work</text>'
        parts.append(f'<g class="tick" style="animation-delay:{number * _TICK_SECONDS:g}s">{label}{paths}</g>')
    for number, (x, y) in zip(living_nodes(drawn.torus), places, strict=True):
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{_RADIUS}"/><text x="{x:g}" y="{y + 4:g}">{number}</text>')
    for dead in drawn.torus.dead:
        x, y = dead % cols * _APART + left, dead // cols * _APART + 34 + _MARGIN
        parts.append(f'<path class="dead" d="M{x - 7:g} {y - 7:g}l14 14m0 -14l-14 14"/>')
    parts += _chart(share, left=(width - count * _BAR) / 2, top=below)
    return _document(width, below + _CHART + 24, parts, seconds=count * _TICK_SECONDS)


def _chart(share: list[float], *, left: float, top: float) -> list[str]:
    bars = [f'<text x="{left:g}" y="{top + _CHART + 16:g}" class="left">links at work, by tick</text>']
    for number, part in enumerate(share):
        x, y, height = left + number * _BAR, top + (1 - part) * _CHART, part * _CHART
        at = f'x="{x:g}" y="{y:g}" width="{_BAR - 2}" height="{height:g}"'
        bars.append(f'<rect {at}/><rect {at} class="tick now" style="animation-delay:{number * _TICK_SECONDS:g}s"/>')
    return bars


def _path(route: int, tick: Tick, places: np.ndarray) -> str:
    """All messages of one route at one tick as one path, each a line with its head."""
    arrows = [_arrow(places[node], places[to]) for node, to in enumerate(tick.to.tolist()) if to >= 0]
    return f'<path stroke="{_COLOURS[route % len(_COLOURS)]}" d="{"".join(arrows)}"/>'


def _arrow(start: np.ndarray, end: np.ndarray) -> str:
    """From node to neighbour; over a wrap-around link, out of the picture on the side where the link leaves."""
    way = end - start
    distance = float(np.abs(way).max())
    way = way / distance
    around = distance > _APART
    way = -way if around else way
    aside = np.array([-way[1], way[0]]) * 5
    tail = start + way * (_RADIUS + 2) + aside
    head = start + way * (0.6 * _APART if around else distance - _RADIUS - 2) + aside
    barbs = [head - way * 6 + side * np.array([-way[1], way[0]]) * 3.5 for side in (1, -1)]
    line = [tail, head, barbs[0], head, barbs[1]]
    return "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in line)


def _document(width: float, height: float, parts: list[str], *, seconds: float) -> str:
    shown = 100 * _TICK_SECONDS / seconds
    style = (
        "text{font:11px sans-serif;text-anchor:middle;fill:#222}.left{text-anchor:start}.title{font-weight:bold}"
        "circle{fill:#fff;stroke:#333}path{fill:none;stroke-width:1.7}.dead{stroke:#999;stroke-width:3}rect{fill:#ccd}"
        f".now{{fill:#1f618d}}.tick{{opacity:0;animation:show {seconds:g}s step-end infinite}}"
        f"@keyframes show{{0%{{opacity:1}}{shown:.4g}%{{opacity:0}}100%{{opacity:0}}}}"
    )
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    background = f'<path d="M0 0h{width:g}v{height:g}h-{width:g}z" style="fill:#fff"/>'
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{style}</style>{background}", *parts, "</svg>\n"]
    )


if __name__ == "__main__":
    for name, made in FILES.items():
        (Path(sys.argv[1]) / name).write_text(draw(made()))
