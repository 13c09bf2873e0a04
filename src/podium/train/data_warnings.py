"""What is odd about a data set and would otherwise be found out hours later. Nothing here ends a run."""

from collections.abc import Iterator

import numpy as np

from podium.data.dataset.shards import ImageSet
from podium.recipe.schema import Recipe

_UNEVEN = 10  # times as many images in one class as in another


def data_warnings(recipe: Recipe, images: ImageSet, validation: ImageSet) -> Iterator[str]:
    """One line for each thing that whoever trains on these images should know."""
    classes = images.classes
    if len(classes) == 1:
        yield f"there is only one class, {classes[0]}, so every answer is right; a class is a sub-folder of images"
    if len(images) < recipe.batch_global:
        smaller = 2 ** (len(images).bit_length() - 1)
        yield (
            f"{len(images):,} training images are fewer than batch_global={recipe.batch_global}, so a batch has some "
            f"twice; use --set batch_global={smaller} --set model.norm_span={min(smaller, recipe.model.norm_span)}"
        )
    counts = np.bincount(images.labels, minlength=len(classes))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[least] * _UNEVEN <= counts[most] and len(classes) > 1:
        yield (
            f"the classes are uneven: {classes[most]} has {counts[most]:,} training images, {classes[least]} "
            f"{counts[least]:,}; podium eval shows the accuracy of each"
        )
    unseen = np.flatnonzero(np.bincount(validation.labels, minlength=len(classes)) == 0)
    if len(unseen) and len(classes) > 1:
        names = ", ".join(classes[i] for i in unseen[:3]) + (", …" if len(unseen) > 3 else "")
        yield f"{len(unseen)} classes have no validation images ({names}), so no accuracy"
