"""A picture of one training batch as the network sees it: cropped, flipped, colours changed, with class names below. It
goes through the loader and the device's own colour change, so that what is wrong in training is wrong here too; only
the normalisation, which no eye can read, is undone.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from podium.data.dataset.shards import ImageSet
from podium.data.input.loader import HostBatch, TrainLoader
from podium.host.files import reporting
from podium.recipe.images import Data
from podium.recipe.schema import Recipe
from podium.step.pixels import network_input

_IMAGES = 64
_COLUMNS = 8
_TILE_LEAST = 112  # pixels; smaller images are enlarged by a whole factor, so that their pixels can be counted
_GAP = 6
_TEXT_HEIGHT = 18
_TEXT_SIZE = 12


def preview(data: Path, recipe: Recipe, out: Path) -> None:
    """Writes a PNG of the first batch of `recipe` on the prepared directory `data`, or of 64 of its images."""
    images = ImageSet.open(data, "train")
    recipe = replace(recipe, steps_per_dispatch=1, data=replace(recipe.data, cache="none"))
    loader = TrainLoader(images, recipe, _even_rows(recipe.batch_global, pairs=recipe.augment.mixes))
    batch = loader.new_batch()
    loader.fill(batch, 0)
    loader.cache.close()
    seen = {name: part[0] for name, part in batch.items()}  # the one step of the dispatch
    names = captions(seen, images.classes)
    sheet = contact_sheet(as_seen(seen, recipe.data), names)
    with reporting(out, "choose a different file for the preview"):
        sheet.save(out, "PNG")


def as_seen(batch: HostBatch, data: Data) -> np.ndarray:
    """uint8 [n, size, size, 3]: what the network is given, with the normalisation undone."""
    seen = np.asarray(network_input({name: jnp.asarray(part) for name, part in batch.items()}, data))
    return np.round((seen * np.array(data.std) + np.array(data.mean)) * 255).clip(0, 255).astype(np.uint8)


def captions(batch: HostBatch, classes: Sequence[str]) -> list[str]:
    """The name of each image's class; of a mixed one both, with the share of the first."""
    names = [classes[label] for label in batch["label"]]
    if "mix" not in batch:
        return names
    shares = batch["mix"][:, 5]
    return [
        name if share == 1 else f"{name} {share:.0%}\n+ {names[k ^ 1]}"
        for k, (name, share) in enumerate(zip(names, shares, strict=True))
    ]


def _even_rows(batch_global: int, *, pairs: bool = False) -> np.ndarray:
    """The batch's places, or some spread evenly over it: neighbours in a batch share a part of the stored images. Where
    pairs are mixed, whole ones."""
    each = 2 if pairs else 1
    count = min(_IMAGES, batch_global) // each
    first = np.arange(count) * (batch_global // each) // count * each
    return (first[:, None] + np.arange(each)).ravel()


def contact_sheet(pixels: np.ndarray, captions: list[str]) -> Image.Image:
    """Images side by side, each with its caption below, which may have several lines."""
    lines = max((caption.count("\n") + 1 for caption in captions), default=1)
    size = pixels.shape[1]
    tile = size * max(1, -(-_TILE_LEAST // size))
    columns = min(_COLUMNS, len(pixels))
    rows = -(-len(pixels) // columns)
    step_x, step_y = tile + _GAP, tile + lines * _TEXT_HEIGHT + _GAP
    sheet = Image.new("RGB", (columns * step_x + _GAP, rows * step_y + _GAP), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(_TEXT_SIZE)
    for i, (image, caption) in enumerate(zip(pixels, captions, strict=True)):
        x, y = _GAP + i % columns * step_x, _GAP + i // columns * step_y
        sheet.paste(Image.fromarray(image).resize((tile, tile), Image.Resampling.NEAREST), (x, y))
        for k, text in enumerate(caption.split("\n")):
            draw.text((x, y + tile + 2 + k * _TEXT_HEIGHT), _shortened(text, tile, font), "black", font)
    return sheet


def _shortened(name: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """The name, or as much of it as fits into `width` pixels."""
    if font.getlength(name) <= width:
        return name
    while name and font.getlength(name + "…") > width:
        name = name[:-1]
    return name + "…"
