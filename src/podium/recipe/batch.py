"""What a batch holds, written once: the loader allocates it, the step is compiled for it, the preview draws it and the
planner counts it.

    image   uint8    [size, size, 3]   of every example, as the decoder wrote it
    label   int32    []                −1 is padding, which evaluation does not count
    colour  float32  [3]               in training with `data.colour_jitter`: brightness, contrast, saturation
"""

from typing import Literal, NamedTuple

from podium.recipe.schema import Data


class Part(NamedTuple):
    """One array of a batch, as a shape and the name of a NumPy type."""

    shape: tuple[int, ...]
    dtype: Literal["uint8", "int32", "float32"]


def train_batch(data: Data, *leading: int) -> dict[str, Part]:
    """The arrays of training batches with these leading dimensions: steps of a dispatch, examples."""
    parts = eval_batch(data, *leading)
    if data.colour_jitter:
        parts["colour"] = Part((*leading, 3), "float32")
    return parts


def eval_batch(data: Data, *leading: int) -> dict[str, Part]:
    """The arrays of evaluation batches with these leading dimensions: examples."""
    return {
        "image": Part((*leading, data.image_size, data.image_size, 3), "uint8"),
        "label": Part(leading, "int32"),
    }
