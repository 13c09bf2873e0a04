"""A trained network, opened from its run directory: to evaluate it again, or to classify images."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from podium.data import decode
from podium.data.dataset.jpeg import BadImage, trainable_jpeg
from podium.data.dataset.shards import ImageSet
from podium.data.input.augment import eval_crops
from podium.data.input.loader import thread_count
from podium.errors import UserError
from podium.host.files import reporting
from podium.mesh import build_mesh, find_devices
from podium.recipe.schema import Data, Recipe
from podium.recipe.torus import Shape, lay_out
from podium.report.events import Evaluated
from podium.step.network import ModelFactory
from podium.step.programs import Step, build_step
from podium.step.state import State
from podium.train import run_directory
from podium.train.checkpoint import Checkpoints
from podium.train.evaluate import Evaluator

_BATCH_PER_CHIP = 256


@dataclass(frozen=True)
class Trained:
    info: run_directory.RunInfo
    recipe: Recipe
    """For this machine's devices, however many have trained it."""
    step: Step
    state: State

    @property
    def steps(self) -> int:
        return int(self.state.step)

    def evaluate(self, data: str | Path | None = None) -> Evaluated:
        """Exact accuracy on the validation images of `data`, by default those it was trained beside."""
        images = ImageSet.open(data or self.info.data, "validation")
        if images.classes != self.info.classes:
            raise UserError(
                f"{images.directory} has {len(images.classes)} classes that are not the run's "
                f"{len(self.info.classes)}; evaluate on data with the same class names"
            )
        trained = self.info.recipe
        epoch = self.steps * trained.batch_global / trained.data.train_images
        return Evaluator(self.recipe, self.step, images)(self.state, self.steps, epoch)

    def predict(self, files: Sequence[str | Path]) -> np.ndarray:
        """Probabilities [file, class], from the same centre crop as in evaluation."""
        many = self.recipe.batch_global
        return np.concatenate([self._predict(files[k : k + many]) for k in range(0, len(files), many)])

    def _predict(self, files: Sequence[str | Path]) -> np.ndarray:
        return np.asarray(self.step.predict(self.state, _pixels([Path(file) for file in files], self.recipe.data)))


def open_run(run: str | Path, make_model: ModelFactory | None = None) -> Trained:
    """The newest checkpoint of a run. A run of your own network needs its `make_model` again.

    >>> from podium import open_run
    >>> trained = open_run("runs/mine")
    >>> trained.evaluate().images
    22
    >>> trained.predict(["photos/red/0.jpg", "photos/blue/0.jpg"]).shape  # probabilities of each class
    (2, 3)
    """
    run = Path(run)
    info = run_directory.read(run)
    shape, devices = find_devices("auto")
    recipe = _for_evaluation(info.recipe, shape)
    step = build_step(
        recipe, build_mesh(lay_out(shape, recipe.batch_global, recipe.model.norm_span), devices), make_model
    )
    with Checkpoints(run) as checkpoints:
        newest = checkpoints.newest_good(logging.warning)
        if newest is None:
            raise UserError(f"{run} has no good checkpoint yet; resume its training with the command that started it")
        return Trained(info, recipe, step, checkpoints.restore(newest, step))


def _for_evaluation(recipe: Recipe, shape: Shape) -> Recipe:
    """Evaluation takes no batch statistics, so the batch and the span are free; a pod's batch would not fit here."""
    per_chip = max(1, min(_BATCH_PER_CHIP, recipe.batch_global // shape.chips))
    return replace(
        recipe,
        torus=str(shape),
        batch_global=per_chip * shape.chips,
        model=replace(recipe.model, norm_span=per_chip),
        weight_update="replicated",
    )


def _pixels(files: Sequence[Path], data: Data) -> np.ndarray:
    """uint8 [file, size, size, 3]: to the bit what evaluation sees of these files once they are prepared."""
    jpegs, sizes = [], []
    for file in files:
        with reporting(file, "give a readable image", action="read"):
            image = file.read_bytes()
        try:
            jpeg, width, height, _ = trainable_jpeg(image)
        except BadImage as bad:
            raise _undecodable(file, str(bad)) from bad
        jpegs.append(jpeg)
        sizes.append((width, height))
    pixels = np.empty((len(files), data.image_size, data.image_size, 3), np.uint8)
    crops = eval_crops(data, np.array(sizes))
    statuses = decode.decode_batch(jpegs, crops.boxes, crops.flips, out=pixels, threads=thread_count(data))
    for file, status in zip(files, statuses, strict=True):
        if status:
            raise _undecodable(file, decode.status_message(status))
    return pixels


def _undecodable(file: Path, reason: str) -> UserError:
    return UserError(f"image {file} cannot be decoded ({reason}); give a whole JPEG or PNG file")
