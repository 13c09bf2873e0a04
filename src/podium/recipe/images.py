"""What a recipe says of images: what the network sees of them, and how they are kept and read."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Annotated, Literal

from podium.recipe.bounds import above, also_called, at_least, at_most, below, rgb


@dataclass(frozen=True)
class Data:
    """What the network sees of an image, and how images are kept and read."""

    image_size: Annotated[
        int, above(0), also_called("resolution", "size"), "Side of the square images that the network sees, in pixels."
    ] = 224
    early_sizes: Annotated[
        tuple[int, ...],
        above(0),
        "Sizes of training images before image_size, one after the other: small images are trained on faster. Each "
        "size has a program of its own.",
    ] = ()
    early_epochs: Annotated[
        tuple[float, ...], above(0), "Epochs after which the next size follows, ascending, one for each early size."
    ] = ()
    eval_size: Annotated[
        int,
        at_least(0),
        also_called("val_size", "test_size", "val_resolution"),
        "Side of the images in evaluation and of those that the trained network is given. 0: image_size.",
    ] = 0
    crop: Annotated[
        Literal["resized", "shifted", "centre"],
        "How training images are cut. resized: a random part of the image, as for ImageNet; shifted: the whole image "
        "moved by a few pixels, as for CIFAR; centre: as in evaluation.",
    ] = "resized"
    min_area: Annotated[float, above(0), at_most(1), "Smallest part of the image's area that a resized crop shows."] = (
        0.08
    )
    shift_pixels: Annotated[int, at_least(0), "How far a shifted crop may move, in pixels."] = 4
    flip: Annotated[bool, "Whether half of the training images are mirrored."] = True
    flip_order: Annotated[
        Literal["random", "alternating"],
        "Which half. random: drawn anew in each epoch; alternating: drawn in the first, then every other epoch the "
        "other way, so that each two epochs show both.",
    ] = "random"
    colour_jitter: Annotated[
        float,
        at_least(0),
        below(1),
        also_called("color_jitter"),
        "Brightness, contrast and saturation each change by up to this share.",
    ] = 0.0
    eval_share: Annotated[
        float,
        above(0),
        at_most(1),
        also_called("crop_pct"),
        "Side of the centre crop in evaluation, as a share of the image's shorter side.",
    ] = 0.875
    mean: Annotated[tuple[float, ...], rgb, "Subtracted from pixels in [0, 1]."] = (0.485, 0.456, 0.406)
    std: Annotated[tuple[float, ...], rgb, above(0), "Pixels are then divided by this."] = (0.229, 0.224, 0.225)
    balance: Annotated[
        Literal["none", "loss", "sampling"],
        "What makes up for classes with few images. loss: an image weighs the more, the fewer its class has; sampling: "
        "every class is drawn equally often, so that images of a small class are seen several times an epoch.",
    ] = "none"
    order: Annotated[
        Literal["v1", "v2"],
        "How the order of images follows from the seed and the batch size. v1 is that of 0.1.0, whose runs keep it: "
        "where a host has few images its shuffle is poor, and if the batch is no power of two a host reads more.",
    ] = "v2"
    cache: Annotated[
        Literal["auto", "pixels", "bytes", "none"],
        "What a host keeps of its images in memory: decoded pixels, the files' bytes, or none. auto: the fastest that "
        "fits.",
    ] = "auto"
    cache_gb: Annotated[
        float, at_least(0), "Memory for the cache, in GB. 0: half of the memory that is free at the start."
    ] = 0.0
    threads: Annotated[
        int, at_least(0), also_called("workers", "num_workers"), "Decoding threads of a host. 0: one per core."
    ] = 0
    max_broken_share: Annotated[
        float, at_least(0), "Share of images that may turn out to be undecodable before the run ends with an error."
    ] = 0.01
    train_images: Annotated[
        int, above(0), "Training images of the data set that the recipe was written for; `podium plan` uses it."
    ] = 1_281_167
    validation_images: Annotated[int, at_least(0), "Validation images of that data set."] = 50_000

    @property
    def train_sizes(self) -> tuple[int, ...]:
        """In the order in which they are trained on."""
        return (*self.early_sizes, self.image_size)

    @property
    def evaluation_size(self) -> int:
        return self.eval_size or self.image_size

    def sizes_from(self, epoch: float) -> tuple[int, ...]:
        """The size of training images after so many epochs, and those that follow it."""
        return self.train_sizes[bisect_right(self.early_epochs, epoch) :]
