"""Draws a schedule as SVG: one panel per tick of the torus reduce-scatter, one arrow per message, in the colour of
its route, labelled with the chunks it carries. It reads the same tables that `routed` runs, so the drawing in
`docs/` cannot be of another algorithm: `python -m podium.reduce.picture 3 3 > docs/torus-schedule.svg`.
"""

import sys

import numpy as np

from podium.reduce.colours import torus_routes
from podium.reduce.routes import Route, Tick

_NODE_PIXELS = 96  # from node to node
_MARGIN_PIXELS = 74
_COLOURS = ("#c0392b", "#e59866", "#1f618d", "#76b5d8")  # the two directions of a colour are dark and light
_NAMES = ("colour 1, forward: X then Y", "colour 1, backward", "colour 2, forward: Y then X", "colour 2, backward")


def draw(rows: int, cols: int) -> str:
    """The schedule of a rows × cols torus, as the text of an SVG file."""
    routes = torus_routes(rows, cols)
    schedule = list(zip(*(route.ticks for route in routes), strict=True))
    width, height = (cols - 1) * _NODE_PIXELS + 2 * _MARGIN_PIXELS, (rows - 1) * _NODE_PIXELS + 2 * _MARGIN_PIXELS
    columns = min(2, len(schedule))
    lines = -(-len(schedule) // columns)
    parts = [_legend(columns * width)]
    for number, together in enumerate(schedule):
        x, y = number % columns * width, 34 + number // columns * height
        title = f'<text x="{width / 2:g}" y="16" class="title">tick {number + 1}</text>'
        arrows = [
            _arrows(number, route, tick, cols=cols)
            for number, (route, tick) in enumerate(zip(routes, together, strict=True))
        ]
        parts.append(f'<g transform="translate({x},{y})">{title}{"".join(arrows)}{_nodes(rows, cols)}</g>')
    return _document(columns * width, 34 + lines * height, parts)


def _document(width: int, height: int, parts: list[str]) -> str:
    style = (
        "text{font:11px sans-serif;text-anchor:middle}.title{font-weight:bold}.chunk{font-size:8px}"
        "circle{fill:#fff;stroke:#333}line{stroke-width:1.6}"
    )
    heads = "".join(
        f'<marker id="head{k}" orient="auto" markerWidth="6" markerHeight="6" refX="5" refY="3">'
        f'<path d="M0,0L6,3L0,6z" fill="{colour}"/></marker>'
        for k, colour in enumerate(_COLOURS)
    )
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    )
    background = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([opening, f"<style>{style}</style><defs>{heads}</defs>{background}", *parts, "</svg>\n"])


def _legend(width: int) -> str:
    step = width / len(_NAMES)
    return "".join(
        f'<text x="{(k + 0.5) * step:g}" y="16" fill="{_COLOURS[k]}">{name}</text>' for k, name in enumerate(_NAMES)
    )


def _place(node: int, cols: int) -> np.ndarray:
    row, col = divmod(node, cols)
    return np.array([col * _NODE_PIXELS + _MARGIN_PIXELS, row * _NODE_PIXELS + _MARGIN_PIXELS], float)


def _nodes(rows: int, cols: int) -> str:
    places = [(node, *_place(node, cols)) for node in range(rows * cols)]
    return "".join(
        f'<circle cx="{x:g}" cy="{y:g}" r="11"/><text x="{x:g}" y="{y + 4:g}">{node}</text>' for node, x, y in places
    )


def _arrows(number: int, route: Route, tick: Tick, *, cols: int) -> str:
    owners = np.argsort(route.own)
    drawn = []
    for node, target in enumerate(tick.to.tolist()):
        chunks = " ".join(
            str(owner) for owner in sorted(owners[tick.start[node] : tick.start[node] + tick.rows[node]].tolist())
        )
        drawn.append(_arrow(number, _place(node, cols), _place(target, cols), chunks=chunks))
    return "".join(drawn)


def _arrow(route: int, start: np.ndarray, end: np.ndarray, *, chunks: str) -> str:
    """From node to neighbour; over a wrap-around link, out of the picture on the side where the link leaves."""
    way = end - start
    distance = np.abs(way).max()
    way = way / distance
    length = 0.5 * _NODE_PIXELS if distance > _NODE_PIXELS else distance - 13
    way = -way if distance > _NODE_PIXELS else way
    aside = np.array([-way[1], way[0]]) * 6
    tail, head = start + way * 13 + aside, start + way * length + aside
    middle = (tail + head) / 2 + aside * (2.2 if way[1] else 0.9)
    return (
        f'<line x1="{tail[0]:g}" y1="{tail[1]:g}" x2="{head[0]:g}" y2="{head[1]:g}" stroke="{_COLOURS[route]}" '
        f'marker-end="url(#head{route})"/>'
        f'<text class="chunk" x="{middle[0]:g}" y="{middle[1] + 3:g}" fill="{_COLOURS[route]}">{chunks}</text>'
    )


if __name__ == "__main__":
    sys.stdout.write(draw(int(sys.argv[1]), int(sys.argv[2])))
