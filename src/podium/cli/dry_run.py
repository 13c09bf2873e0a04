"""What `podium train --dry-run` says: what would be trained, on what, for how long and where. Nothing is written."""

from pathlib import Path

from podium.data.dataset.manifest import has_manifest
from podium.data.dataset.shards import ImageSet
from podium.data.prepare.locate import training_directory
from podium.mesh import pass_over_compilers, recipe_mesh
from podium.recipe.schema import Recipe
from podium.step.programs import network_shapes
from podium.train.checkpoint_files import complete_steps
from podium.train.initial_weights import find_start, open_weights
from podium.train.loop import checkpoint_steps, evaluation_steps


def describe(
    recipe: Recipe, data: str | None, run: Path | None, *, weights: str | None, from_step: int | None
) -> dict[str, str]:
    """A line about each thing, by its name."""
    told, filled = {}, recipe
    told["data"], images = _data(data)
    if images is not None:
        filled = recipe.for_data(len(images[0].classes), len(images[0]), len(images[1]))
    told["network"] = (
        f"network: {recipe.model.name}, {filled.model.classes or 'as many as the data has'} classes, "
        f"{recipe.data.image_size} px; frozen: {recipe.model.freeze}; "
        f"{_start(weights, filled, classes=images and images[0].classes, run=run)}"
    )
    told["training"] = (
        f"training: recipe {recipe.name}, {filled.epochs:g} epochs of {filled.data.train_images:,} images in batches "
        f"of {filled.batch_global}: {filled.train_steps:,} steps, {len(evaluation_steps(filled))} evaluations, a "
        f"checkpoint every {checkpoint_steps(filled).step:,} steps; chips: {recipe.torus}"
    )
    told["run"] = _run(run, filled, from_step)
    return told


def _data(data: str | None) -> tuple[str, tuple[ImageSet, ImageSet] | None]:
    if data is None:
        return "data: the demo's images, made on first use", None
    place = training_directory(data)
    if has_manifest(place.directory):
        images = ImageSet.open(place.directory, "train"), ImageSet.open(place.directory, "validation")
        counts = (
            f"{len(images[0]):,} training and {len(images[1]):,} validation images of {len(images[0].classes)} classes"
        )
        return f"data: {counts} in {place.directory}", images
    files = place.found.files if place.found else []
    size = sum(file.bytes for file in files) / 1e9
    return f"data: {data} would be prepared first: {len(files):,} files, {size:.3g} GB, into {place.directory}", None


def _start(weights: str | None, recipe: Recipe, *, classes: tuple[str, ...] | None, run: Path | None) -> str:
    """Weights that do not fit are refused, as in training, once the data has told the classes."""
    if weights is None:
        return "starts from random numbers"
    if classes is None:
        pass_over_compilers()
        found = open_weights(weights)
        return f"starts from {len(found.tensors)} tensors of {found.source}"
    said: list[str] = []
    shapes = network_shapes(recipe, recipe_mesh(recipe))
    find_start(weights, run or Path("runs"), recipe=recipe, shapes=shapes, classes=classes, say=said.append)
    return "; ".join(said) or "continues from the run's own checkpoint"


def _run(run: Path | None, recipe: Recipe, from_step: int | None) -> str:
    if run is None:
        return f"run: a new directory, runs/{recipe.name}-TIME"
    steps = complete_steps(run / "checkpoints")
    if (run / "summary.json").exists() and from_step is None:
        return f"run: {run} is finished, after step {steps[-1] if steps else 0:,}"
    if from_step is not None or steps:
        return (
            f"run: {run} resumes after step {steps[-1] if from_step is None else from_step:,} of {recipe.train_steps:,}"
        )
    return f"run: {run} starts anew" if (run / "run.json").exists() else f"run: {run} is made"
