"""Podium's input pipeline for any JAX program: training batches on the devices, ready ahead of time. Podium's own loop
takes the same parts one by one (`loader`, `prefetch`), as it also resumes, reads ahead and runs several steps at once.
"""

from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from podium.data.dataset.shards import ImageSet
from podium.data.input.loader import HostBatch, TrainLoader
from podium.data.input.prefetch import Feed, local_rows
from podium.mesh import batch_sharding, recipe_mesh
from podium.recipe.schema import Recipe


class Loader:
    """Training batches of a recipe, as dictionaries of device arrays: `image` uint8 [batch, size, size, 3], `label`
    int32 [batch] and, with `data.colour_jitter`, `colour` float32 [batch, 3]. Each is split over the chips of `mesh`,
    by default those of `recipe.torus`. Batch t depends on the recipe's seed and t alone, so a program that has stopped
    after t batches resumes with `first_step=t`.

    >>> from podium import Loader, load_recipe
    >>> recipe = load_recipe("demo", ["torus=1x1", "batch_global=32", "data.image_size=48"])
    >>> loader = Loader("prepared", recipe)
    >>> for batch in loader.steps(3):
    ...     print(batch["image"].shape, batch["image"].dtype, batch["label"].shape)
    (32, 48, 48, 3) uint8 (32,)
    (32, 48, 48, 3) uint8 (32,)
    (32, 48, 48, 3) uint8 (32,)
    >>> loader.steps_per_epoch
    3.0
    >>> loader.close()
    """

    def __init__(self, data: str | PathLike[str], recipe: Recipe, mesh: Mesh | None = None) -> None:
        self.images = ImageSet.open(Path(data), "train")
        self.batch_global = recipe.batch_global
        self._sharding = batch_sharding(mesh or recipe_mesh(recipe))
        rows = local_rows(self._sharding, recipe.batch_global)
        self._loader = _OneStep(self.images, replace(recipe, steps_per_dispatch=1), rows)

    @property
    def steps_per_epoch(self) -> float:
        return len(self.images) / self.batch_global

    def steps(self, count: int, *, first_step: int = 0) -> Iterator[dict[str, jax.Array]]:
        """The batches of `count` steps from `first_step` on; the next two are on their way while you use one."""
        with Feed(
            self._loader, range(first_step, first_step + count), self._sharding, batch_global=self.batch_global
        ) as feed:
            yield from feed

    def close(self) -> None:
        """Ends the threads and lets go of the images in memory."""
        self._loader.close()


class _OneStep(TrainLoader):
    """Batches without the leading axis that the steps of a dispatch have."""

    def new_batch(self) -> HostBatch:
        return {name: np.squeeze(part, 0) for name, part in super().new_batch().items()}

    def fill(self, batch: HostBatch, first_step: int) -> None:
        super().fill({name: part[None] for name, part in batch.items()}, first_step)
