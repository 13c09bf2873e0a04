"""`podium prepare`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from tyro.conf import Positional, arg

from podium.cli.arguments.command import Command, RecipeName, option
from podium.data.prepare_options import PrepareOptions

_DEFAULTS = PrepareOptions()


@dataclass(frozen=True)
class Prepare(Command):
    """Turn a folder, archive or bucket of images into a directory that training reads fast."""

    source: Annotated[Positional[str], arg(metavar="SOURCE")] = tyro.MISSING
    """The images: a folder, tar, WebDataset, TFRecords or Parquet; local, gs:// or s3://."""
    out: Annotated[Positional[str], arg(metavar="OUT")] = tyro.MISSING
    """Directory to make. If it was begun before, preparation resumes."""
    preview: Annotated[Path | None, option("FILE.png")] = None
    """Also draw one training batch as the network sees it."""
    recipe: RecipeName = "resnet50-256"
    """Recipe whose crops and colours the preview shows."""
    options: Annotated[PrepareOptions, arg(name="")] = _DEFAULTS

    does: ClassVar[str] = "podium.cli.prepare:prepare"
