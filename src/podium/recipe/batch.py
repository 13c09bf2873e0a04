"""What a batch holds, written once: the loader allocates it, the step is compiled for it, the preview draws it and the
planner counts it.

    image   uint8    [size, size, 3]   of every example, as the decoder wrote it; or packed, see below
    label   int32    []                −1 is padding, which evaluation does not count
    colour  float32  [3]               in training with `data.colour_jitter`: brightness, contrast, saturation
    erase   int32    [4]               in training with `augment.erasing`: left, top, right, bottom
    mix     float32  [6]               in training with `augment.mixup` or `cutmix`: see `data.input.mixing`
    weight  float32  []                in training with class weights: how much the image counts in the loss

Packed images are what a TPU's first layer reads without rearranging: a chip's n images stand in one block
[size/2, size/8, n, 2 · 8 · 3], where the last axis holds 2 rows of 8 columns of pixels. The blocks of the chips follow
each other along the first axis, [chips · size/2, …], so that they are divided among chips as the examples are.
"""

from typing import Literal, NamedTuple

import numpy as np

from podium.recipe.images import Data
from podium.recipe.schema import Recipe

PACKED_ROWS, PACKED_COLUMNS = 2, 8


class Part(NamedTuple):
    """One array of a batch, as a shape and the name of a NumPy type."""

    shape: tuple[int, ...]
    dtype: Literal["uint8", "int32", "float32"]


def train_batch(recipe: Recipe, *leading: int, size: int | None = None) -> dict[str, Part]:
    """The arrays of training batches with these leading dimensions: steps of a dispatch, examples; `size` is that of
    the images, the last that is trained on by default."""
    parts = _images(recipe.data.image_size if size is None else size, leading)
    if recipe.data.colour_jitter:
        parts["colour"] = Part((*leading, 3), "float32")
    if recipe.augment.erasing:
        parts["erase"] = Part((*leading, 4), "int32")
    if recipe.augment.mixes:
        parts["mix"] = Part((*leading, 6), "float32")
    if recipe.class_weights or recipe.data.balance == "loss":
        parts["weight"] = Part(leading, "float32")
    return parts


def eval_batch(data: Data, *leading: int) -> dict[str, Part]:
    """The arrays of evaluation batches with these leading dimensions: examples."""
    return _images(data.evaluation_size, leading)


def _images(size: int, leading: tuple[int, ...]) -> dict[str, Part]:
    return {"image": Part((*leading, size, size, 3), "uint8"), "label": Part(leading, "int32")}


def packed(parts: dict[str, Part], chips: int) -> dict[str, Part]:
    """The arrays of a batch whose images are packed for so many chips."""
    *leading, examples, height, width, colours = parts["image"].shape
    blocks = (chips * height // PACKED_ROWS, width // PACKED_COLUMNS, examples // chips)
    image = Part((*leading, *blocks, PACKED_ROWS * PACKED_COLUMNS * colours), "uint8")
    return {**parts, "image": image}


def pack_images(images: np.ndarray) -> np.ndarray:
    """[…, n, height, width, 3] → the block of one chip, […, height/2, width/8, n, 2 · 8 · 3]."""
    *leading, n, height, width, colours = images.shape
    places = (height // PACKED_ROWS, PACKED_ROWS, width // PACKED_COLUMNS, PACKED_COLUMNS)
    at = len(leading)
    apart = np.moveaxis(images.reshape(*leading, n, *places, colours), (at + 1, at + 3, at), (at, at + 1, at + 2))
    return np.ascontiguousarray(apart).reshape(*leading, places[0], places[2], n, -1)
