"""Host batches: the places of a global batch that this host fills, as NumPy arrays. Follows one batch from `order`
through `augment` and the cache to the decoder; `prefetch` takes it to the devices. Which images and crops is decided
by (seed, step) alone. An image that cannot be decoded is named, counted and replaced by the next one of the data
set.
"""

import logging
import os
import threading
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from podium.data import decode
from podium.data.dataset.shards import ImageSet
from podium.data.decode.change import change_batch
from podium.data.input.augment import eval_crops
from podium.data.input.balanced import BalancedOrder
from podium.data.input.buffers import BatchMemory
from podium.data.input.cache import Cache, budget_bytes, choose_level
from podium.data.input.draws import Draws
from podium.data.input.order import Order, evaluation_batch, evaluation_batches, evaluation_share
from podium.data.input.share import Share, runs
from podium.errors import UserError
from podium.recipe.batch import eval_batch, train_batch
from podium.recipe.images import Data
from podium.recipe.schema import Recipe

log = logging.getLogger("podium")

HostBatch = dict[str, np.ndarray]
"""The places of a batch that this host fills; `recipe.batch` says what is in it."""


@dataclass
class Broken:
    """How many images were met, and how many of them could not be decoded."""

    met: int = 0
    broken: int = 0


class TrainLoader:
    """Fills the places `rows` of global training batches."""

    def __init__(self, images: ImageSet, recipe: Recipe, rows: np.ndarray, *, budget: int | None = None) -> None:
        self.images, self.recipe, self.rows = images, recipe, rows
        self.order = make_order(images, recipe)
        share = self.order.share(rows)
        budget = budget_bytes(recipe.data.cache_gb) if budget is None else budget
        level = choose_level(images, share, recipe.data.cache, budget_bytes=budget)
        self.cache = Cache(images, level, thread_count(recipe.data))
        self.draws = Draws(self.order, recipe, rows, images=images)
        self.broken = Broken()
        self._mean_colour = np.round(255 * np.array(recipe.data.mean)).clip(0, 255).astype(np.uint8)
        self._memory = BatchMemory()
        self._closed = threading.Event()
        self._reader: threading.Thread | None = None

    @cached_property
    def _weights(self) -> np.ndarray:
        return class_weights(self.recipe, self.images.labels)

    def read_ahead(self, first_step: int) -> None:
        """Starts to fill the cache with this host's share, in the order in which the next epoch asks for it: while the
        programs compile there is time, and no batch waits for a file later."""

        def run() -> None:
            for step in range(first_step, first_step + -(-len(self.images) // self.recipe.batch_global)):
                if self._closed.is_set():
                    return
                self.cache.read_ahead(self.order.batch(step, self.rows)[0])

        if self.cache.level != "none":
            self._reader = threading.Thread(target=run, name="podium-read-ahead", daemon=True)
            self._reader.start()

    def close(self) -> None:
        """Ends the reading ahead."""
        self._closed.set()
        if self._reader:
            self._reader.join()
        self.cache.close()

    def new_batch(self, first_step: int = 0) -> HostBatch:
        """Arrays for the dispatch that begins with this step, their content arbitrary."""
        size, steps = self.recipe.size_at(first_step), self.recipe.steps_per_dispatch
        parts = train_batch(self.recipe, steps, len(self.rows), size=size)
        return {name: self._memory.empty(*part) for name, part in parts.items()}

    def fill(self, batch: HostBatch, first_step: int) -> None:
        """The batches of steps first_step, first_step + 1, … of one dispatch."""
        for i in range(len(batch["label"])):
            draw = self.draws.step(first_step + i)
            crops, samples = draw.crops, draw.samples.copy()
            statuses = self.cache.decode(samples, crops.boxes, crops.flips, out=batch["image"][i])
            self.broken.met += len(samples)
            for row in np.flatnonzero(statuses):
                samples[row] = self._replace(samples[row], draw.epochs[row], statuses[row], out=batch["image"][i, row])
            if self.recipe.augment.policy != "none":
                operations = self.draws.operations(draw, size=batch["image"].shape[-2])
                change_batch(batch["image"][i], operations, self._mean_colour, threads=self.cache.threads)
            batch["label"][i] = self.images.labels_of(samples)
            if "weight" in batch:
                batch["weight"][i] = self._weights[batch["label"][i]]
            for name, drawn in self.draws.beside(draw, size=batch["image"].shape[-2]).items():
                batch[name][i] = drawn

    def _replace(self, sample: int, epoch: int, status: int, *, out: np.ndarray) -> int:
        """Puts the next image that decodes into `out`, and gives its number."""
        while True:
            self.broken.broken += 1
            name, reason = self.images.name(int(sample)), decode.status_message(int(status))
            log.warning("image %s cannot be decoded (%s); the next one takes its place", name, reason)
            # Below a hundred images met, one broken file would already be more than a usual limit.
            allowed = self.recipe.data.max_broken_share * max(self.broken.met, 100)
            if self.broken.broken > allowed:
                raise UserError(
                    f"{self.broken.broken} of {self.broken.met} images met cannot be decoded, more than "
                    f"data.max_broken_share={self.recipe.data.max_broken_share:g} allows (last: {name}, {reason}); "
                    f"podium prepare --check decode leaves them out"
                )
            sample = (sample + 1) % len(self.images)
            one = np.array([sample])
            crops = self.draws.crops(one, np.array([epoch]))
            status = self.cache.decode(one, crops.boxes, crops.flips, out=out[None])[0]
            if status == 0:
                return sample


class EvalLoader:
    """Fills the places `rows` of evaluation batches: every image once, in stored order, then padding with label −1."""

    def __init__(
        self, images: ImageSet, data: Data, batch_global: int, *, rows: np.ndarray, budget: int | None = None
    ) -> None:
        self.images, self.data, self.batch_global, self.rows = images, data, batch_global, rows
        self.batches = evaluation_batches(len(images), batch_global)
        budget = budget_bytes(data.cache_gb) if budget is None else budget
        share = evaluation_share(len(images), batch_global, rows)
        self.cache = Cache(images, choose_level(images, share, data.cache, budget_bytes=budget), thread_count(data))
        self._memory = BatchMemory()

    def new_batch(self, index: int = 0) -> HostBatch:
        parts = eval_batch(self.data, len(self.rows))
        return {name: self._memory.empty(*part) for name, part in parts.items()}

    def fill(self, batch: HostBatch, index: int) -> None:
        samples = evaluation_batch(len(self.images), self.batch_global, index, rows=self.rows)
        here = np.flatnonzero(samples >= 0)
        present = samples[here]
        crops = eval_crops(self.data, self.images.sizes_of(present))
        # Padding stands behind the images, so the images are a contiguous start of the batch.
        statuses = self.cache.decode(present, crops.boxes, crops.flips, out=batch["image"][: len(here)])
        for row in np.flatnonzero(statuses):
            raise UserError(
                f"validation image {self.images.name(int(present[row]))} cannot be decoded "
                f"({decode.status_message(int(statuses[row]))}), so no accuracy would be exact; podium prepare "
                "--check decode leaves it out"
            )
        batch["image"][len(here) :] = 0
        batch["label"][:] = -1
        batch["label"][here] = self.images.labels_of(present)


def make_order(images: ImageSet, recipe: Recipe) -> Order | BalancedOrder:
    if recipe.data.balance == "sampling":
        return BalancedOrder(images.labels, recipe.batch_global, recipe.seed)
    return Order(len(images), recipe.batch_global, recipe.seed, version=recipe.data.order)


def training_share(images: ImageSet, recipe: Recipe, rows: np.ndarray) -> Share:
    """The stored images that the places `rows` may ever draw; all where the labels of all decide what is drawn, or how
    much it counts."""
    share = make_order(images, recipe).share(rows)
    return runs(np.arange(len(images))) if recipe.data.balance == "loss" else share


def class_weights(recipe: Recipe, labels: np.ndarray) -> np.ndarray:
    """How much an image of each class counts in the loss: as the recipe says, or so that all classes together count
    alike and the mean over the images is 1."""
    if recipe.class_weights:
        return np.array(recipe.class_weights, np.float32)
    counts = np.bincount(labels, minlength=max(1, recipe.model.classes))
    return (len(labels) / np.maximum(counts, 1) / np.count_nonzero(counts)).astype(np.float32)


def thread_count(data: Data) -> int:
    return data.threads or len(os.sched_getaffinity(0))
