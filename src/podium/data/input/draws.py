"""What a host does in the next steps: which images, and which part of each. Pure functions of (seed, step) stand behind
it; here they are asked for some steps at once, because NumPy takes as long for a hundred numbers as for a thousand.
"""

from dataclasses import dataclass

import numpy as np

from podium.data.input.augment import Crops, train_crops
from podium.data.input.order import Order
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
    def __init__(self, order: Order, recipe: Recipe, rows: np.ndarray, *, sizes: np.ndarray) -> None:
        """`rows` are this host's places of a batch, `sizes` [image, 2] the width and height of all stored images."""
        self._order, self._recipe, self._rows, self._sizes = order, recipe, rows, sizes
        self._drawn: dict[int, Draw] = {}

    def step(self, step: int) -> Draw:
        if step not in self._drawn:
            self._drawn = self._some(step, max(1, _IMAGES_AT_ONCE // len(self._rows)))
        return self._drawn[step]

    def forget(self) -> None:
        """Forgets what was drawn, so that a benchmark can time the drawing."""
        self._drawn = {}

    def crops(self, samples: np.ndarray, epochs: np.ndarray) -> Crops:
        return train_crops(self._recipe.data, self._recipe.seed, epochs, samples=samples, sizes=self._sizes[samples])

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
