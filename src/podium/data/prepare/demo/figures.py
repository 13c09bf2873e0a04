"""The ten figures of the demo data set, as outlines that `podium.data.prepare.demo` poses and paints. Each function
draws a few proportions from the generator it is given, so no two are quite alike; no figure is another one
mirrored or turned by the 50° a pose allows. y points down; the scale is free, since the painter fits a figure
to its size.
"""

import math
from collections.abc import Callable

import numpy as np

Points = np.ndarray  # (corners, 2), float
Layer = tuple[Points, bool]  # True adds to the silhouette, False cuts a hole; painted in order
Figure = tuple[list[Layer], list[Points]]  # silhouette, and marks painted on it


Pair = tuple[float, float]


def _ellipse(centre: Pair, radii: Pair, degrees: Pair = (0, 360), *, tilt: float = 0) -> Points:
    (x, y), angle = centre, np.radians(np.linspace(*degrees, 40))
    along, across = radii[0] * np.cos(angle), radii[1] * np.sin(angle)
    c, s = math.cos(math.radians(tilt)), math.sin(math.radians(tilt))
    return np.stack([x + c * along - s * across, y + s * along + c * across], axis=1)


def _polygon(*corners: tuple[float, float]) -> Points:
    return np.array(corners, float)


def _box(left_top: Pair, right_bottom: Pair) -> Points:
    (left, top), (right, bottom) = left_top, right_bottom
    return _polygon((left, top), (right, top), (right, bottom), (left, bottom))


def _both_sides(points: Points) -> list[Points]:
    return [points, points * (-1, 1)]


def _union(*parts: Points) -> list[Layer]:
    return [(part, True) for part in parts]


def _butterfly(rng: np.random.Generator) -> Figure:
    span, tilt = rng.uniform(0.42, 0.52), rng.uniform(30, 45)
    upper = _both_sides(_ellipse((0.48, -0.34), (span, 0.34), tilt=-tilt))
    lower = _both_sides(_ellipse((0.36, 0.36), (0.38, 0.27), tilt=tilt))
    feelers = _both_sides(_polygon((0.0, -0.5), (0.22, -0.98), (0.3, -0.95), (0.06, -0.45)))
    body = _ellipse((0, 0), (0.09, 0.6))
    spots = _both_sides(_ellipse((0.55, -0.4), (0.15, 0.12))) + _both_sides(_ellipse((0.42, 0.4), (0.11, 0.09)))
    return _union(*upper, *lower, *feelers, body), [body, *spots]


def _cat(rng: np.random.Generator) -> Figure:
    ear = rng.uniform(0.9, 1.1)
    ears = _both_sides(_polygon((0.1, -0.5), (0.72, -ear), (0.86, -0.05)))
    inner_ears = _both_sides(_polygon((0.4, -0.58), (0.65, -ear + 0.18), (0.71, -0.4)))
    eyes = _both_sides(_ellipse((0.36, -0.08), (0.12, rng.uniform(0.1, 0.18))))
    nose = _polygon((-0.12, 0.22), (0.12, 0.22), (0, 0.36))
    whiskers = _both_sides(_polygon((0.3, 0.3), (0.8, 0.25), (0.8, 0.29), (0.3, 0.35)))
    whiskers += _both_sides(_polygon((0.3, 0.4), (0.8, 0.48), (0.8, 0.52), (0.3, 0.45)))
    head = _ellipse((0, 0.1), (0.9, rng.uniform(0.7, 0.8)))
    return _union(head, *ears), [*inner_ears, *eyes, nose, *whiskers]


def _fish(rng: np.random.Generator) -> Figure:
    height = rng.uniform(0.38, 0.5)
    body = _ellipse((-0.2, 0), (0.78, height))
    tail = _polygon((0.35, 0), (0.98, -0.5), (0.84, 0), (0.98, 0.5))
    back_fin = _polygon((-0.45, -height * 0.85), (0.05, -height - 0.25), (0.25, -height * 0.7))
    belly_fin = _polygon((-0.2, height * 0.9), (0.15, height + 0.2), (0.2, height * 0.75))
    gill = np.concatenate([_ellipse((-0.62, 0), (0.2, 0.28), (-70, 70)), _ellipse((-0.67, 0), (0.2, 0.28), (70, -70))])
    eye = _ellipse((-0.7, -0.1), (0.07, 0.07))
    return _union(body, tail, back_fin, belly_fin), [eye, gill]


def _heart(rng: np.random.Generator) -> Figure:
    t = np.linspace(0, 2 * np.pi, 80)
    y = 13 * np.cos(t) - rng.uniform(4.5, 5.5) * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return [(np.stack([16 * np.sin(t) ** 3, -y], axis=1), True)], []


def _key(rng: np.random.Generator) -> Figure:
    bow, half = rng.uniform(0.36, 0.44), rng.uniform(0.09, 0.12)
    layers = [(_ellipse((-0.6, 0), (bow, bow)), True), (_ellipse((-0.6, 0), (bow * 0.52, bow * 0.52)), False)]
    layers.append((_box((-0.6 + bow * 0.8, -half), (1, half)), True))
    for left in (0.38, 0.62, 0.86)[rng.integers(2) :]:
        layers.append((_box((left, 0), (left + 0.14, half + rng.uniform(0.18, 0.3))), True))
    return layers, []


def _moon(rng: np.random.Generator) -> Figure:
    bite = rng.uniform(0.72, 0.82)
    return [(_ellipse((0, 0), (1, 1)), True), (_ellipse((rng.uniform(0.42, 0.55), -0.12), (bite, bite)), False)], []


def _mug(rng: np.random.Generator) -> Figure:
    foot, grip = rng.uniform(0.42, 0.58), rng.uniform(0.34, 0.42)
    rim, base = _ellipse((-0.2, -0.62), (0.62, 0.16), (180, 360)), _ellipse((-0.2, 0.72), (foot, 0.14), (0, 180))
    handle, hole = _ellipse((0.4, 0), (grip + 0.1, grip + 0.06)), _ellipse((0.4, 0), (grip - 0.08, grip - 0.12))
    return [(handle, True), (hole, False), (np.concatenate([rim, base]), True)], [_ellipse((-0.2, -0.62), (0.54, 0.11))]


def _star(rng: np.random.Generator) -> Figure:
    angle = np.radians(np.arange(10) * 36 - 90)
    radius = np.where(np.arange(10) % 2, rng.uniform(0.38, 0.52), 1.0)
    return [(np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), True)], []


def _tree(rng: np.random.Generator) -> Figure:
    widths = np.array([0.42, 0.6, 0.78]) * rng.uniform(0.85, 1.05)
    heights = [(-1.0, -0.4), (-0.6, 0.1), (-0.15, 0.65)]
    tiers = zip(heights, widths, strict=True)
    crown = [_polygon((0, top), (width, low), (-width, low)) for (top, low), width in tiers]
    trunk = _box((-0.14, 0.6), (0.14, 1))
    return _union(*crown, trunk), [trunk]


def _umbrella(rng: np.random.Generator) -> Figure:
    rise = rng.uniform(0.75, 0.95)
    layers = [(_ellipse((0, 0), (1, rise), (180, 360)), True)]
    layers += [(_ellipse((x, 0.02), (1 / 3, 0.15)), False) for x in (-2 / 3, 0, 2 / 3)]
    layers += _union(_box((-0.06, -rise - 0.12), (0.06, 0.75)), _ellipse((0.18, 0.75), (0.24, 0.24), (0, 180)))
    layers.append((_ellipse((0.18, 0.74), (0.12, 0.12), (0, 180)), False))
    bend = -rise * 0.6
    return layers, _both_sides(_polygon((0, -rise), (0.2, bend), (0.36, -0.1), (0.31, -0.1), (0.15, bend)))


FIGURES: dict[str, Callable[[np.random.Generator], Figure]] = {
    "butterfly": _butterfly,
    "cat": _cat,
    "fish": _fish,
    "heart": _heart,
    "key": _key,
    "moon": _moon,
    "mug": _mug,
    "star": _star,
    "tree": _tree,
    "umbrella": _umbrella,
}
