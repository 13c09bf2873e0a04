"""The demo data set: photographs of ten toy objects that nobody had to take. Every image is a pure function
of (seed, index): a figure is drawn in a random pose, given a colour, texture, relief and a shadow, laid on a
cluttered, out-of-focus background, then lit, made noisy and saved as a JPEG of photographic size. Only the
outline tells the class; colour, texture, size and place are drawn alike for all, so a linear classifier on
pixels fails. `images` renders a range of indices on every core for the shard writer. Nothing here reads or
writes files, and nothing imports JAX, so the worker processes stay light.
"""

import colorsys
import io
import math
import os
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from statistics import NormalDist

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps

from podium.data.prepare.demo.figures import FIGURES, Points
from podium.errors import UserError

CLASSES: tuple[str, ...] = tuple(FIGURES)
TRAIN_IMAGES = 4_000
VALIDATION_IMAGES = 1_000
TRAIN = range(TRAIN_IMAGES)
VALIDATION = range(TRAIN_IMAGES, TRAIN_IMAGES + VALIDATION_IMAGES)

_GREY_SHARE = 0.05
_NORMAL_QUANTILES = [NormalDist().inv_cdf((level + 0.5) / 256) for level in range(256)]
_CHUNK_IMAGES = 25  # about 0.15 s of work: small beside the whole, large beside the cost of passing it on

# ---------------------------------------------------------------- one photograph


def render(seed: int, index: int) -> tuple[bytes, int]:
    """The JPEG and the label of image `index`: the same bytes under the same Pillow, libjpeg and NumPy."""
    label = _label(seed, index)
    rng = _random(seed, index, stream=0)
    width, height = _size(rng)
    background_luma, object_luma = _two_lumas(rng)
    photo = _background(rng, width, height, luma=background_luma)
    _put_object(rng, photo, CLASSES[label], luma=object_luma)
    _light(rng, photo)
    photo = _speckle(rng, photo, rng.uniform(1, 6))
    if rng.random() < _GREY_SHARE:
        photo = photo.convert("L")
    jpeg = io.BytesIO()
    subsampling = ("4:4:4", "4:2:2", "4:2:0")[rng.integers(3)]
    photo.save(jpeg, "JPEG", quality=int(rng.integers(80, 97)), subsampling=subsampling)
    return jpeg.getvalue(), label


def _random(seed: int, number: int, stream: int) -> np.random.Generator:
    key = np.array([seed, number], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, stream]))


def _label(seed: int, index: int) -> int:
    """Every ten indices hold each class once, shuffled: balanced splits, and no class at a fixed stride."""
    block, place = divmod(index, len(CLASSES))
    return int(_random(seed, block, stream=1).permutation(len(CLASSES))[place])


def _size(rng: np.random.Generator) -> tuple[int, int]:
    short = int(rng.integers(200, 313))
    long = min(500, round(short * rng.uniform(1.0, 1.6)))
    return (long, short) if rng.random() < 0.65 else (short, long)


def _two_lumas(rng: np.random.Generator) -> tuple[float, float]:
    """Dark on light or light on dark, equally often, at least 75 levels apart: visible in grey too."""
    dark = rng.uniform(45, 140)
    pair = (dark, min(235.0, dark + rng.uniform(75, 120)))
    return pair if rng.random() < 0.5 else pair[::-1]


def _colour(rng: np.random.Generator, luma: float, saturation: float) -> tuple[int, int, int]:
    """A random hue at a given luma (ITU-R 601); the saturation is at most the one given."""
    red, green, blue = colorsys.hsv_to_rgb(rng.random(), rng.uniform(0.1, saturation), 0.8)
    lift = luma - 255 * (0.299 * red + 0.587 * green + 0.114 * blue)
    return _level(255 * red + lift), _level(255 * green + lift), _level(255 * blue + lift)


def _level(value: float) -> int:
    return min(255, max(0, round(value)))


def _image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _background(rng: np.random.Generator, width: int, height: int, *, luma: float) -> Image.Image:
    """Painted at a half to a quarter of the size, blurred and enlarged: cheap, and out of focus."""
    coarse = int(rng.integers(2, 5))
    size = (width // coarse, height // coarse)
    base, other = np.array([_colour(rng, luma, 0.5), _colour(rng, luma, 0.5)])
    blend = rng.random((rng.integers(2, 5), rng.integers(2, 5), 1))
    cloud = base + (other - base) * blend + rng.normal(0, 9, blend.shape)
    scene = _image(cloud).resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(scene)
    unit = min(size)
    for _ in range(rng.integers(6, 16)):
        ink = _colour(rng, luma + rng.normal(0, 15), 0.6)
        centre = rng.random(2) * size
        if rng.random() < 0.4:
            reach = rng.normal(0, 0.5 * unit, 2)
            thickness = int(rng.integers(1, 2 + unit // 16))
            draw.line([tuple(centre - reach), tuple(centre + reach)], ink, thickness)
        else:  # a lump with a few random corners
            angle = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(4, 11)))
            radius = unit * rng.uniform(0.04, 0.2) * rng.uniform(0.7, 1.2, angle.size)
            lump = centre + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
            draw.polygon([tuple(corner) for corner in lump], ink)
    scene = _speckle(rng, scene.filter(ImageFilter.BoxBlur(rng.uniform(0.6, 1.6))), rng.uniform(1, 9))
    return scene.resize((width, height), Image.Resampling.BILINEAR)


def _put_object(rng: np.random.Generator, photo: Image.Image, name: str, *, luma: float) -> None:
    short = min(photo.size)
    side = 8 * round(short * rng.uniform(0.58, 0.84) / 8)
    silhouette, marks = _silhouette(rng, name, side)
    slack = (np.array(photo.size) - side) / 2
    corner = np.round(slack + rng.uniform(-1, 1, 2) * np.minimum(slack, 0.12 * short))

    light = rng.uniform(0, 2 * np.pi)
    towards = np.array([math.cos(light), math.sin(light)])
    quarter = silhouette.reduce(4)
    margin = quarter.width // 8  # room for the shadow's soft edge
    soft = ImageOps.expand(quarter, margin).filter(ImageFilter.GaussianBlur(quarter.width * 0.035))
    shade = soft.point(lambda level: level * 0.45).resize((4 * soft.width,) * 2, Image.Resampling.BILINEAR)
    photo.paste((0, 0, 0), _place(corner - 4 * margin - towards * side * 0.06), shade)

    down, right = np.gradient(np.asarray(soft, np.float32)[margin:-margin, margin:-margin] / 255)
    slope = quarter.width * -(right * towards[0] + down * towards[1])
    relief = np.where(slope > 0, 9.0, 5.0) * slope  # bright rims carry the form; dark ones would look burnt
    paint = np.array(_colour(rng, luma, 0.85))
    second = _colour(rng, luma + rng.choice([-1, 1]) * rng.uniform(8, 28), 0.85)
    surface = paint + (second - paint) * _pattern(rng, quarter.width) + relief[..., None]
    skin = _image(surface).resize((side, side), Image.Resampling.BILINEAR)
    skin.paste(_colour(rng, luma + (60 if luma < 110 else -60), 0.6), (0, 0), marks)
    photo.paste(skin, _place(corner), silhouette)
    if rng.random() < 0.25:
        _occlude(rng, photo, corner + side / 2, side=side)


def _place(corner: np.ndarray) -> tuple[int, int]:
    return round(float(corner[0])), round(float(corner[1]))


def _silhouette(rng: np.random.Generator, name: str, side: int) -> tuple[Image.Image, Image.Image]:
    """Masks of the posed figure and its marks, `side` pixels square, drawn at twice that for smooth edges."""
    layers, marks = FIGURES[name](rng)
    turn, shear = np.radians(rng.uniform(-25, 25)), rng.uniform(-0.15, 0.15)
    mirror, squeeze = rng.choice([-1, 1]), rng.uniform(0.85, 1.15)
    pose = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    pose = np.array([[mirror * squeeze, 0], [shear, 1]]) @ pose
    posed = np.concatenate([points for points, adds in layers if adds]) @ pose
    low, high = posed.min(axis=0), posed.max(axis=0)
    zoom = 2 * side * 0.96 / max(high - low)

    def corners(points: Points) -> list[tuple[float, float]]:
        return [(x, y) for x, y in ((points @ pose - (low + high) / 2) * zoom + side).tolist()]

    silhouette, painted = Image.new("L", (2 * side, 2 * side)), Image.new("L", (2 * side, 2 * side))
    draw = ImageDraw.Draw(silhouette)
    for points, adds in layers:
        draw.polygon(corners(points), 255 if adds else 0)
    draw = ImageDraw.Draw(painted)
    for points in marks:
        draw.polygon(corners(points), 255)
    silhouette, painted = silhouette.reduce(2), painted.reduce(2)
    return silhouette, ImageChops.multiply(silhouette, painted)


def _pattern(rng: np.random.Generator, size: int) -> np.ndarray:
    """Plain, striped, checked or marbled, in 0…1, (size, size, 1)."""
    angle, waves = rng.uniform(0, np.pi), rng.uniform(3, 7)
    y, x = np.mgrid[0:size, 0:size] * (2 * np.pi * waves / size)
    along, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    stripes = np.clip(0.5 + 2 * np.sin(along), 0, 1)
    checks = np.clip(0.5 + 3 * np.sin(along) * np.sin(across), 0, 1)
    blotches = Image.fromarray(rng.random((5, 5), np.float32))
    marble = np.asarray(blotches.resize((size, size), Image.Resampling.BICUBIC))
    return (np.zeros_like(x), stripes, checks, marble)[rng.integers(4)][..., None]


def _occlude(rng: np.random.Generator, photo: Image.Image, centre: np.ndarray, *, side: int) -> None:
    """A straw in front of the object, at most a twelfth of its side thick."""
    angle = rng.uniform(0, 2 * np.pi)
    along = np.array([math.cos(angle), math.sin(angle)])
    middle = centre + rng.uniform(-0.35, 0.35) * side * np.array([-along[1], along[0]])
    ends = [tuple(middle - along * sum(photo.size)), tuple(middle + along * sum(photo.size))]
    ink = _colour(rng, rng.uniform(30, 220), 0.5)
    ImageDraw.Draw(photo).line(ends, ink, round(side * rng.uniform(0.02, 0.08)))


def _light(rng: np.random.Generator, photo: Image.Image) -> None:
    """Uneven light: some corner may be up to a third dimmer than another."""
    dimness = Image.fromarray(rng.integers(0, 85, (3, 3), np.uint8))
    photo.paste((0, 0, 0), (0, 0), dimness.resize(photo.size, Image.Resampling.BILINEAR))


def _speckle(rng: np.random.Generator, photo: Image.Image, sigma: float) -> Image.Image:
    """Add grey Gaussian noise of `sigma` levels: random bytes through a table of quantiles, all in Pillow's
    integer arithmetic, because NumPy's normal draws and float passes took a third of the whole time."""
    random_bytes = Image.frombytes("L", photo.size, rng.bytes(photo.width * photo.height))
    noise = random_bytes.point([round(128 + sigma * quantile) for quantile in _NORMAL_QUANTILES])
    return ImageChops.add(photo, Image.merge("RGB", (noise, noise, noise)), offset=-128)


# ---------------------------------------------------------------- many photographs, on every core


def images(seed: int, indices: range) -> Iterator[tuple[bytes, int, str]]:
    """Yield (JPEG, label, name) for each index, in order, with a few chunks per core in memory at most."""
    if not 0 <= seed < 2**64:
        raise UserError(f"demo seed {seed} is outside 0…2^64−1; give a non-negative integer")
    chunks = deque(indices[at : at + _CHUNK_IMAGES] for at in range(0, len(indices), _CHUNK_IMAGES))
    workers = max(1, min(_cores(), len(chunks)))
    # Spawned, not forked: the caller may hold JAX threads, which a fork would copy with their locks held.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_ignore_interrupt)
    pending: deque[Future[list[tuple[bytes, int, str]]]] = deque()
    try:
        while chunks or pending:
            while chunks and len(pending) < 3 * workers:
                pending.append(pool.submit(_render_chunk, seed, chunks.popleft()))
            yield from pending.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "a process rendering the demo images died; free some memory, and if you call Podium from a "
            "script of your own, put the call under `if __name__ == '__main__':`"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _render_chunk(seed: int, indices: range) -> list[tuple[bytes, int, str]]:
    rendered = ((index, *render(seed, index)) for index in indices)
    return [(jpeg, label, f"{CLASSES[label]}/{index:05d}.jpg") for index, jpeg, label in rendered]


def _ignore_interrupt() -> None:
    """Ctrl-C reaches the whole terminal group; the parent alone answers it, by closing the generator."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
