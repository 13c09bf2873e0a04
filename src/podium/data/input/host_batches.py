"""Podium's input pipeline for a program without JAX: training batches as NumPy arrays, made ahead of time. `Loader` of
`device_batches` gives the same batches on devices.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from podium.data.dataset.shards import ImageSet
from podium.data.input.ahead import Ahead, filled
from podium.data.input.loader import HostBatch, TrainLoader
from podium.errors import UserError
from podium.recipe.schema import Recipe


class NumpyLoader:
    """Training batches of a recipe, as dictionaries of NumPy arrays: `image` uint8 [batch, size, size, 3], `label`
    int32 [batch] and what the recipe's options put beside them (`recipe.batch`): with `data.colour_jitter`, `colour`
    float32 [batch, 3]. Of `parts` programs that share each batch, program `part` gets an equal run of its places:
    together they see what one alone would. Batch t depends on the recipe's seed and t alone, so a program that has
    stopped after t batches resumes with `first_step=t`.

    >>> from podium import NumpyLoader, load_recipe
    >>> recipe = load_recipe("demo", ["batch_global=32", "data.image_size=48"])
    >>> loader = NumpyLoader("prepared", recipe, part=1, parts=2)
    >>> for step, batch in zip(range(2), loader):
    ...     print(step, batch["image"].shape, batch["image"].dtype, batch["label"].shape)
    0 (16, 48, 48, 3) uint8 (16,)
    1 (16, 48, 48, 3) uint8 (16,)
    >>> loader.close()
    """

    def __init__(self, data: str | PathLike[str], recipe: Recipe, *, part: int = 0, parts: int = 1) -> None:
        if not 0 <= part < parts or recipe.batch_global % parts:
            raise UserError(
                f"part={part} of parts={parts}, batch_global={recipe.batch_global}: part counts from 0 to parts − 1, "
                "and parts must divide the batch"
            )
        self.images = ImageSet.open(Path(data), "train")
        self.batch_global = recipe.batch_global
        places = recipe.batch_global // parts
        self._loader = OneStep(self.images, recipe, np.arange(part * places, (part + 1) * places))

    @property
    def steps_per_epoch(self) -> float:
        return len(self.images) / self.batch_global

    def __iter__(self) -> Iterator[HostBatch]:
        """Batches without end, from step 0 on."""
        return self.steps()

    def steps(self, count: int | None = None, *, first_step: int = 0) -> Iterator[HostBatch]:
        """The batches of `count` steps (or without end) from `first_step` on; the next two are made while you use
        one."""
        with Ahead(lambda step: filled(self._loader, step), step_numbers(count, first_step)) as batches:
            yield from batches

    def close(self) -> None:
        """Ends the threads and lets go of the images in memory."""
        self._loader.close()


def step_numbers(count: int | None, first_step: int) -> Iterator[int]:
    return iter(itertools.count(first_step) if count is None else range(first_step, first_step + count))


class OneStep(TrainLoader):
    """Batches without the leading axis that the steps of a dispatch have."""

    def __init__(self, images: ImageSet, recipe: Recipe, rows: np.ndarray) -> None:
        super().__init__(images, replace(recipe, steps_per_dispatch=1), rows)

    def new_batch(self, first_step: int = 0) -> HostBatch:
        return {name: np.squeeze(part, 0) for name, part in super().new_batch(first_step).items()}

    def fill(self, batch: HostBatch, first_step: int) -> None:
        super().fill({name: part[None] for name, part in batch.items()}, first_step)
