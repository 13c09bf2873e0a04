"""`podium export`: a trained network for other programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro
from tyro.conf import Positional, arg

from podium.cli.arguments.command import Command, Flag, RawWeights, option
from podium.errors import UserError

_FORMAT = (
    "safetensors: weights with torchvision's and timm's names. onnx: for onnxruntime and others (needs the extra "
    "onnx). stablehlo: for JAX and XLA."
)
_INPUT = (
    "What an ONNX model takes. pixels: uint8 [n, rows, columns, 3], normalised inside. normalised: float32 "
    "[n, 3, rows, columns], as torchvision's networks do."
)


@dataclass(frozen=True)
class Export(Command):
    """Write a trained network for other programs, and check it on real images."""

    run: Annotated[Positional[Path], arg(metavar="RUN")] = tyro.MISSING
    """Directory of the run."""
    out: Annotated[Positional[Path], arg(metavar="OUT")] = tyro.MISSING
    """Folder to make: the model, config.json and README.md."""
    format: Annotated[Literal["safetensors", "onnx", "stablehlo"], arg(help=_FORMAT)] = "safetensors"
    input: Annotated[Literal["pixels", "normalised"], arg(help=_INPUT)] = "pixels"
    fold_norms: Flag = False
    """Fold each batch norm of an ONNX model into the convolution before it."""
    raw_weights: RawWeights = False
    data: Annotated[str | None, option("PATH", "the run's validation images")] = None
    """A prepared directory whose validation images the files are checked on."""

    does: ClassVar[str] = "podium.cli.export:export"

    def check(self) -> None:
        for given, option_name in ((self.fold_norms, "--fold-norms"), (self.input != "pixels", "--input normalised")):
            if given and self.format != "onnx":
                raise UserError(f"{option_name} is for --format onnx, not {self.format}; leave it out")
