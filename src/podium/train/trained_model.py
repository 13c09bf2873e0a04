"""A trained network, opened from its run directory: to evaluate it again, or to classify images."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jax.sharding import Mesh

from podium.data import decode
from podium.data.dataset.jpeg import BadImage, trainable_jpeg
from podium.data.dataset.shards import ImageSet
from podium.data.input.augment import eval_crops
from podium.data.input.loader import EvalLoader, thread_count
from podium.data.input.prefetch import local_rows
from podium.errors import UserError
from podium.host.files import reporting
from podium.mesh import build_mesh, find_devices
from podium.recipe.images import Data
from podium.recipe.schema import Recipe
from podium.recipe.torus import Shape, lay_out
from podium.report.events import Evaluated
from podium.step.network import ModelFactory
from podium.step.programs import Step, build_step
from podium.step.state import State
from podium.train import run_directory
from podium.train.answers import answers
from podium.train.checkpoint import Checkpoints
from podium.train.evaluate import Evaluator
from podium.train.judge import Judge
from podium.train.stored_run import fetched

_BATCH_PER_CHIP = 256


@dataclass(frozen=True)
class Trained:
    info: run_directory.RunInfo
    recipe: Recipe
    """For this machine's devices, however many have trained it."""
    step: Step
    state: State
    mesh: Mesh
    make_model: ModelFactory | None = None

    @property
    def steps(self) -> int:
        return int(self.state.step)

    @property
    def epoch(self) -> float:
        """How far it was trained."""
        return self.steps * self.info.recipe.batch_global / self.info.recipe.data.train_images

    def evaluate(self, data: str | Path | None = None) -> Evaluated:
        """Exact accuracy on the validation images of `data`, by default those it was trained beside. Its classes may be
        some of the run's."""
        return Evaluator(self.recipe, self.step, self.validation(data))(self.state, self.steps, self.epoch)

    def examine(self, data: str | Path | None = None, *, mistakes: int = 32) -> tuple[Evaluated, Judge]:
        """The same with all answers looked at: by class, the confusion matrix, calibration, the surest mistakes."""
        began, images = time.perf_counter(), self.validation(data)
        batch_global = self.recipe.batch_global
        rows = local_rows(self.step.eval_batches, batch_global)
        loader = EvalLoader(images, self.recipe.data, batch_global, rows=rows)
        judge = Judge(len(images.classes), mistakes)
        for index, batch in enumerate(answers(self.step, self.state, loader)):
            numbers = index * batch_global + np.flatnonzero(batch.label >= 0)
            judge.add(batch, images.labels[numbers], numbers)
        if judge.images != len(images):
            raise RuntimeError(f"evaluation counted {judge.images} images of {len(images)}")
        evaluated = Evaluated(
            step=self.steps,
            epoch=self.epoch,
            images=judge.images,
            top1=judge.top1,
            top5=judge.top5 / judge.images,
            loss=judge.loss / judge.images,
            seconds=time.perf_counter() - began,
        )
        return evaluated, judge

    def validation(self, data: str | Path | None = None) -> ImageSet:
        """The validation images of `data`, with the run's class numbers."""
        return ImageSet.open(data or self.info.data, "validation").with_classes(self.info.classes)

    def batch_for(self, images: int) -> int:
        """The size of batches for so many images: no larger than needed, and one of a few, as each is compiled."""
        chips = self.mesh.size
        return min(self.recipe.batch_global, chips * 2 ** max(0, (-(-images // chips) - 1).bit_length()))

    def validation_pixels(self, count: int, data: str | Path | None = None) -> np.ndarray:
        """uint8 [count, size, size, 3]: validation images from all over the set, as evaluation sees them."""
        images = self.validation(data)
        count = min(count, len(images))
        chosen = [k * len(images) // count for k in range(count)]
        return stored_pixels(images, chosen, self.recipe.data)

    def predict(self, files: Sequence[str | Path]) -> np.ndarray:
        """Probabilities [file, class], from the same centre crop as in evaluation."""
        many = self.recipe.batch_global
        return np.concatenate([self._predict(files[k : k + many]) for k in range(0, len(files), many)])

    def _predict(self, files: Sequence[str | Path]) -> np.ndarray:
        return np.asarray(self.step.predict(self.state, _pixels([Path(file) for file in files], self.recipe.data)))


def open_run(
    run: str | Path,
    make_model: ModelFactory | None = None,
    *,
    checkpoint: Literal["newest", "best"] | int = "newest",
    raw_weights: bool = False,
    size: int | None = None,
) -> Trained:
    """The newest checkpoint of a run, its best one, or that of a step. Of a run that averages its weights it is the
    average, or with `raw_weights` the weights themselves. `size` is that of the images in pixels, where not the
    recipe's. A run of your own network needs its `make_model` again.

    >>> from podium import open_run
    >>> trained = open_run("runs/mine")
    >>> trained.evaluate().images
    22
    >>> trained.predict(["photos/red/0.jpg", "photos/blue/0.jpg"]).shape  # probabilities of each class
    (2, 3)
    """
    run = fetched(run)
    info = run_directory.read(run)
    shape, devices = find_devices("auto")
    recipe = _for_evaluation(info.recipe, shape)
    if size is not None:
        recipe = replace(recipe, data=replace(recipe.data, eval_size=size))
    mesh = build_mesh(lay_out(shape, recipe.batch_global, recipe.model.norm_span), devices)
    step = build_step(recipe, mesh, make_model)
    with Checkpoints(run) as checkpoints:
        chosen = _chosen_step(checkpoints, checkpoint)
        state = checkpoints.restore(chosen, step, answering=not raw_weights)
        return Trained(info, recipe, step, state, mesh, make_model)


def _chosen_step(checkpoints: Checkpoints, which: Literal["newest", "best"] | int) -> int:
    """The step of the checkpoint that is meant, if it is there and whole."""
    run, kept = checkpoints.run, ", ".join(map(str, checkpoints.steps())) or "none"
    if which == "newest":
        step = checkpoints.newest_good(logging.warning)
        if step is None:
            raise UserError(f"{run} has no good checkpoint yet; resume its training with podium train --run {run}")
        return step
    step = checkpoints.best() if which == "best" else which
    if step is None:
        raise UserError(f"{run} does not know its best checkpoint, as it was not evaluated; kept are {kept}")
    if step not in checkpoints.steps():
        raise UserError(f"{run} has no checkpoint of step {step}; kept are {kept}")
    checkpoints.verify(step)
    return step


def _for_evaluation(recipe: Recipe, shape: Shape) -> Recipe:
    """Evaluation takes no batch statistics, so the batch and the span are free; a pod's batch would not fit here."""
    per_chip = max(1, min(_BATCH_PER_CHIP, recipe.batch_global // shape.chips))
    return replace(
        recipe,
        torus=str(shape),
        batch_global=per_chip * shape.chips,
        model=replace(recipe.model, norm_span=per_chip),
        weight_update="replicated",
        average_decay=0.0,  # what answers is in the place of the weights
    )


def stored_pixels(images: ImageSet, chosen: Sequence[int], data: Data) -> np.ndarray:
    """uint8 [chosen, size, size, 3]: prepared images as evaluation sees them."""
    pixels = np.empty((len(chosen), data.evaluation_size, data.evaluation_size, 3), np.uint8)
    crops, jpegs = eval_crops(data, images.sizes[list(chosen)]), [images.image(i).tobytes() for i in chosen]
    statuses = decode.decode_batch(jpegs, crops.boxes, crops.flips, out=pixels, threads=thread_count(data))
    for index, status in zip(chosen, statuses, strict=True):
        if status:
            raise _undecodable(Path(images.name(index)), decode.status_message(status))
    return pixels


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
    pixels = np.empty((len(files), data.evaluation_size, data.evaluation_size, 3), np.uint8)
    crops = eval_crops(data, np.array(sizes))
    statuses = decode.decode_batch(jpegs, crops.boxes, crops.flips, out=pixels, threads=thread_count(data))
    for file, status in zip(files, statuses, strict=True):
        if status:
            raise _undecodable(file, decode.status_message(status))
    return pixels


def _undecodable(file: Path, reason: str) -> UserError:
    advice = "scale it down" if "over the limit" in reason else "give a whole JPEG or PNG file"
    return UserError(f"image {file} cannot be decoded ({reason}); {advice}")
