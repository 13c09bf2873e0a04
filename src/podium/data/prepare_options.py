"""What `podium prepare` can be told, apart from what carries it out, so that the command line's help loads nothing."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from podium.errors import UserError


@dataclass(frozen=True)
class PrepareOptions:
    train: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """Training images: a source of its own, or files or a pattern inside SOURCE."""
    validation: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """Validation images, likewise. Without --train, the rest of SOURCE is for training, except test images."""
    validation_share: Annotated[float, arg(metavar="SHARE")] = 0.0
    """Share of the images to hold out for validation, by a hash of the name, if the source has no validation images."""
    unsplit: Literal["train", "validation"] = "train"
    """What to use images for if the source does not say."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the stored order and of the held-out share."""
    check: Literal["header", "decode"] = "header"
    """header: check markers, end marker and, from 128 × 128 pixels on, every code. decode: every pixel too (slow)."""
    strict: Annotated[bool, arg(help_behavior_hint="")] = False
    """Stop at the first unusable image instead of leaving it out."""
    workers: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: one per core)")] = None
    """Number of threads. A folder behind a URL has more by default."""

    def __post_init__(self) -> None:
        if not 0 <= self.validation_share < 1:
            raise UserError(f"validation_share={self.validation_share} is not in [0, 1); give a share such as 0.1")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed={self.seed} is not in [0, 2^63); give a small whole number")
        if self.workers is not None and self.workers < 1:
            raise UserError(f"workers={self.workers}; give 1 or more, or none for one per core")


FOR_TRAINING = PrepareOptions(validation_share=0.1)
FOR_EVALUATION = PrepareOptions(unsplit="validation")
"""What `--data` means to `podium train` and `podium eval`."""
