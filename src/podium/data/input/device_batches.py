"""Podium's input pipeline for any JAX program: training batches on the devices, ready ahead of time. Podium's own loop
takes the same parts one by one (`loader`, `prefetch`), as it also resumes, reads ahead and runs several steps at once.
"""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import jax
from jax.sharding import Mesh, NamedSharding

from podium.data.dataset.shards import ImageSet
from podium.data.input.host_batches import OneStep, step_numbers
from podium.data.input.prefetch import Feed, local_rows
from podium.errors import UserError
from podium.mesh import batch_sharding, recipe_mesh
from podium.recipe.schema import Recipe


class Loader:
    """Training batches of a recipe, as dictionaries of device arrays: `image` uint8 [batch, size, size, 3], `label`
    int32 [batch] and what the recipe's options put beside them (`recipe.batch`): with `data.colour_jitter`, `colour`
    float32 [batch, 3]. Each is split over the chips of `over`: a mesh of Podium's, or any sharding of the first axis;
    by default the chips of `recipe.torus`. Batch t depends on the recipe's seed and t alone, so a program that has
    stopped after t batches resumes with `first_step=t`.

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

    def __init__(self, data: str | PathLike[str], recipe: Recipe, over: Mesh | NamedSharding | None = None) -> None:
        self.images = ImageSet.open(Path(data), "train")
        self.batch_global = recipe.batch_global
        self._sharding = over if isinstance(over, NamedSharding) else batch_sharding(over or recipe_mesh(recipe))
        if len(self._sharding.spec) > 1:
            raise UserError(f"over={self._sharding.spec} splits more than the examples; use PartitionSpec(AXIS)")
        rows = local_rows(self._sharding, recipe.batch_global)
        self._loader = OneStep(self.images, recipe, rows)

    @property
    def steps_per_epoch(self) -> float:
        return len(self.images) / self.batch_global

    def __iter__(self) -> Iterator[dict[str, jax.Array]]:
        """Batches without end, from step 0 on."""
        return self.steps()

    def steps(self, count: int | None = None, *, first_step: int = 0) -> Iterator[dict[str, jax.Array]]:
        """The batches of `count` steps (or without end) from `first_step` on; the next two are on their way while you
        use one."""
        numbers = step_numbers(count, first_step)
        with Feed(self._loader, numbers, self._sharding, batch_global=self.batch_global) as feed:
            yield from feed

    def close(self) -> None:
        """Ends the threads and lets go of the images in memory."""
        self._loader.close()
