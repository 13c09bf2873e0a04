"""What a host does in the next steps: which images, and which part of each. Pure functions of (seed, step) stand behind
it; here they are asked for some steps at once, because NumPy takes as long for a hundred numbers as for a thousand.
"""

from dataclasses import dataclass

import numpy as np

from podium.data.dataset.shards import ImageSet
from podium.data.input import counter_rng
from podium.data.input.augment import Crops, train_crops
from podium.data.input.balanced import BalancedOrder
from podium.data.input.mixing import erased, mixes
from podium.data.input.order import Order
from podium.data.input.policy import policy_operations
from podium.recipe.schema import Recipe

_IMAGES_AT_ONCE = 1024


@dataclass(frozen=True)
class Draw:
    """What was drawn for one step and this host's places."""

    samples: np.ndarray
    """int64 [n]: stored images"""
    epochs: np.ndarray
    """int64 [n]"""
    crops: Crops


class Draws:
    def __init__(self, order: Order | BalancedOrder, recipe: Recipe, rows: np.ndarray, *, images: ImageSet) -> None:
        """`rows` are this host's places of a batch."""
        self._order, self._recipe, self._rows, self._images = order, recipe, rows, images
        self._drawn: dict[int, Draw] = {}

    def step(self, step: int) -> Draw:
        if step not in self._drawn:
            self._drawn = self._some(step, max(1, _IMAGES_AT_ONCE // len(self._rows)))
        return self._drawn[step]

    def forget(self) -> None:
        """Forgets what was drawn, so that a benchmark can time the drawing."""
        self._drawn = {}

    def crops(self, samples: np.ndarray, epochs: np.ndarray) -> Crops:
        sizes = self._images.sizes_of(samples)
        return train_crops(self._recipe.data, self._recipe.seed, epochs, samples=samples, sizes=sizes)

    def operations(self, draw: Draw, *, size: int) -> np.ndarray:
        """What the recipe's policy does to a step's images of this size."""
        keys = counter_rng.key(self._recipe.seed, draw.epochs, draw.samples)
        return policy_operations(self._recipe.augment, keys, size)

    def beside(self, draw: Draw, *, size: int) -> dict[str, np.ndarray]:
        """What stands beside a step's images of this size in a batch, by the name that `recipe.batch` gives it."""
        recipe, found = self._recipe, {}
        keys = counter_rng.key(recipe.seed, draw.epochs, draw.samples)
        if recipe.data.colour_jitter:
            found["colour"] = draw.crops.colours
        if recipe.augment.erasing:
            found["erase"] = erased(recipe.augment, keys, size)
        if recipe.augment.mixes:
            found["mix"] = mixes(recipe.augment, keys, size)
        return found

    def _some(self, first: int, steps: int) -> dict[int, Draw]:
        n = len(self._rows)
        at = np.repeat(np.arange(first, first + steps), n)
        samples, epochs = self._order.batch(at, np.tile(self._rows, steps))
        crops = self.crops(samples, epochs)
        parts = [slice(i * n, (i + 1) * n) for i in range(steps)]
        return {
            first + i: Draw(samples[p], epochs[p], Crops(crops.boxes[p], crops.flips[p], crops.colours[p]))
            for i, p in enumerate(parts)
        }
