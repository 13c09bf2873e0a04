"""What a recipe says of how training images are changed beyond crops and flips (`recipe.images`)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from podium.recipe.bounds import above, also_called, at_least, at_most


@dataclass(frozen=True)
class Augment:
    """Changes of training images beyond crop, flip and colour. All are drawn from (seed, epoch, image), and all are off
    unless a recipe asks for them."""

    policy: Annotated[
        Literal["none", "trivial", "random"],
        also_called("auto_augment", "aa", "autoaugment", "randaugment", "trivialaugment"),
        "Operations such as rotate, shear, posterize and equalize. trivial: one of them at any strength, as "
        "TrivialAugment; random: several of a given strength, as RandAugment.",
    ] = "none"
    operations: Annotated[
        int,
        above(0),
        at_most(8),
        also_called("num_ops", "num_layers"),
        "How many of them the random policy draws.",
    ] = 2
    operation_share: Annotated[
        float, above(0), at_most(1), "How often an operation that the random policy has drawn is applied."
    ] = 0.5
    magnitude: Annotated[float, at_least(0), at_most(10), "Strength of the random policy's operations."] = 9.0
    magnitude_spread: Annotated[
        float, at_least(0), also_called("mstd"), "Standard deviation of that strength from image to image."
    ] = 0.5
    erasing: Annotated[
        float,
        at_least(0),
        at_most(1),
        also_called("random_erasing", "reprob", "random_erase", "cutout"),
        "How often a rectangle of an image, 2 to 33 % of it, is painted in the mean colour.",
    ] = 0.0
    mixup: Annotated[
        float,
        at_least(0),
        also_called("mixup_alpha"),
        "α of the beta distribution from which mixup draws the share of an image that stays; its neighbour in the "
        "batch is the rest. 0: no mixup.",
    ] = 0.0
    cutmix: Annotated[
        float,
        at_least(0),
        also_called("cutmix_alpha"),
        "α of the same for CutMix, which puts a rectangle of the neighbour into the image. With mixup too, each image "
        "is as likely to get the one as the other. 0: no CutMix.",
    ] = 0.0
    mix_share: Annotated[
        float, above(0), at_most(1), also_called("mixup_prob"), "How often an image is mixed, where mixing is on."
    ] = 1.0

    @property
    def mixes(self) -> bool:
        return self.mixup > 0 or self.cutmix > 0
