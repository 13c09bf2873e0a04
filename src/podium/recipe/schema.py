"""What a run is, as frozen typed data: read from TOML, changed with `--set key=value`, checked before any device is
touched. A recipe is inert: it names no device and opens no file of images. An unknown key, a wrong type or a
combination that cannot work ends in one line that says what to write instead.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal

from podium.errors import UserError
from podium.recipe.torus import lay_out, parse_torus


@dataclass(frozen=True)
class Data:
    """What the network sees of an image."""

    image_size: int = 224
    crop: Literal["resized", "shifted", "centre"] = "resized"
    min_area: float = 0.08  # of the image, for crop = "resized"
    shift_pixels: int = 4  # how far a crop = "shifted" may leave the image
    flip: bool = True
    colour_jitter: float = 0.0  # brightness, contrast and saturation each change by up to this share
    eval_share: float = 0.875  # the side of the centre crop, as a share of the image's shorter side
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    cache: Literal["auto", "pixels", "bytes", "none"] = "auto"
    cache_gb: float = 0.0  # 0: half of the memory that is free at start
    threads: int = 0  # 0: one per core
    max_broken_share: float = 0.01  # of the images met; more end the run
    train_images: int = 1_281_167  # the data set the recipe was written for; `plan` counts with it
    validation_images: int = 50_000


@dataclass(frozen=True)
class Model:
    """The network. `norm_span` is the number of examples that share batch-norm statistics, on any number of chips."""

    norm_span: int
    name: str = "resnet50"
    classes: int = 0  # 0: as many as the data has
    stem: Literal["conv7", "space_to_depth", "conv3", "fold3", "patches"] = "conv7"  # patches: of resnet7
    norm_momentum: float = 0.9
    norm_epsilon: float = 1e-5
    last_scale: float = 0.0  # what the last norm of a ResNet's blocks starts with; 0: as the identity


@dataclass(frozen=True)
class Sgd:
    """Momentum SGD; weight decay is added to the gradient, except for batch norm and biases."""

    name: Literal["sgd"]
    learning_rate: float
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class Lars:
    """LARS; batch norm and biases take plain momentum steps. `variant` is explained in `podium.optim`."""

    name: Literal["lars"]
    learning_rate: float
    variant: Literal["tf", "scaled_momentum"] = "tf"
    momentum: float = 0.9
    weight_decay: float = 1e-4
    trust: float = 0.001


@dataclass(frozen=True)
class Polynomial:
    decay: Literal["polynomial"]
    warmup_epochs: float = 5.0
    power: float = 2.0


@dataclass(frozen=True)
class Cosine:
    decay: Literal["cosine"]
    warmup_epochs: float = 5.0


@dataclass(frozen=True)
class Steps:
    decay: Literal["steps"]
    warmup_epochs: float = 5.0
    at_epochs: tuple[float, ...] = (30.0, 60.0, 80.0)
    factor: float = 0.1


Optimizer = Sgd | Lars
Schedule = Polynomial | Cosine | Steps


@dataclass(frozen=True)
class Recipe:
    """One training run."""

    epochs: float
    batch_global: int
    model: Model
    optimizer: Optimizer
    schedule: Schedule
    data: Data = field(default_factory=Data)
    name: str = "custom"
    seed: int = 0
    torus: str = "auto"  # ROWSxCOLS or ROWSxCOLSxLANES; on a machine with only a CPU these chips are simulated
    precision: Literal["auto", "bf16", "fp32"] = "auto"  # of convolutions; auto: bf16, but fp32 on a CPU
    reduce: Literal["auto", "xla", "ring", "torus"] = (
        "auto"  # how gradients are summed; auto: xla, measured over sockets
    )
    weight_update: Literal["auto", "sharded", "replicated"] = "auto"  # auto: sharded from 8 chips of a CPU on
    bucket_mb: float = 25.0  # gradients are summed in flat buckets of this size (a replicated xla sum: in XLA's own)
    label_smoothing: float = 0.0
    evaluate_every_epochs: float = 4.0
    steps_per_dispatch: int = 1  # a scan on the device
    log_every_steps: int = 10
    max_lost_steps: int = 200  # by a kill at any moment: a checkpoint begins after every half of it

    def __post_init__(self) -> None:
        _check(self)

    @property
    def train_steps(self) -> int:
        """A whole number of dispatches, so that a run compiles one program."""
        dispatches = self.epochs * self.data.train_images / self.batch_global / self.steps_per_dispatch
        return max(1, round(dispatches)) * self.steps_per_dispatch

    def for_data(self, classes: int, train_images: int, validation_images: int) -> "Recipe":
        """This recipe with the numbers of a real data set filled in."""
        if self.model.classes not in (0, classes):
            raise UserError(
                f"model.classes={self.model.classes} and the data has {classes} classes; "
                f"use --set model.classes=0 to take the data's"
            )
        data = dataclasses.replace(self.data, train_images=train_images, validation_images=validation_images)
        return dataclasses.replace(self, data=data, model=dataclasses.replace(self.model, classes=classes))


def _check(r: Recipe) -> None:
    """Combinations that cannot work, found before anything is started."""
    for key, value in [
        ("epochs", r.epochs),
        ("bucket_mb", r.bucket_mb), ("batch_global", r.batch_global), ("model.norm_span", r.model.norm_span),
        ("data.image_size", r.data.image_size), ("steps_per_dispatch", r.steps_per_dispatch),
        ("log_every_steps", r.log_every_steps),
        ("max_lost_steps", r.max_lost_steps), ("evaluate_every_epochs", r.evaluate_every_epochs),
        ("optimizer.learning_rate", r.optimizer.learning_rate), ("model.norm_epsilon", r.model.norm_epsilon),
        *([("optimizer.trust", r.optimizer.trust)] if isinstance(r.optimizer, Lars) else []),
        *([("schedule.power", r.schedule.power)] if isinstance(r.schedule, Polynomial) else []),
        *([("schedule.factor", r.schedule.factor)] if isinstance(r.schedule, Steps) else []),
    ]:  # fmt: skip
        if value <= 0:
            raise UserError(f"{key}={value} must be greater than 0")
    for key, value in [
        ("seed", r.seed), ("schedule.warmup_epochs", r.schedule.warmup_epochs), ("model.classes", r.model.classes),
        ("optimizer.weight_decay", r.optimizer.weight_decay), ("data.shift_pixels", r.data.shift_pixels),
        ("data.threads", r.data.threads), ("data.cache_gb", r.data.cache_gb),
        ("data.max_broken_share", r.data.max_broken_share),
    ]:  # fmt: skip
        if value < 0:
            raise UserError(f"{key}={value} must not be negative")
    for key, value in [
        ("label_smoothing", r.label_smoothing), ("optimizer.momentum", r.optimizer.momentum),
        ("model.norm_momentum", r.model.norm_momentum), ("data.colour_jitter", r.data.colour_jitter),
    ]:  # fmt: skip
        if not 0 <= value < 1:
            raise UserError(f"{key}={value} must be at least 0 and below 1")
    for key, value in [("data.min_area", r.data.min_area), ("data.eval_share", r.data.eval_share)]:
        if not 0 < value <= 1:
            raise UserError(f"{key}={value} must be above 0 and at most 1")
    if len(r.data.mean) != 3 or len(r.data.std) != 3 or min(r.data.std) <= 0:
        raise UserError("data.mean and data.std need three numbers each, for red, green and blue, std above 0")
    if r.max_lost_steps < 2 * r.steps_per_dispatch:
        raise UserError(
            f"max_lost_steps={r.max_lost_steps} cannot be kept with steps_per_dispatch={r.steps_per_dispatch}; "
            f"use {2 * r.steps_per_dispatch} or more: a checkpoint is written while the next dispatch runs"
        )
    if r.schedule.warmup_epochs >= r.epochs:
        raise UserError(
            f"schedule.warmup_epochs={r.schedule.warmup_epochs:g} must be below epochs={r.epochs:g}; "
            f"lower one or raise the other"
        )
    if isinstance(r.schedule, Steps):
        ends = (r.schedule.warmup_epochs, *r.schedule.at_epochs, r.epochs)
        if list(ends) != sorted(ends) or r.epochs in r.schedule.at_epochs:
            raise UserError(
                f"schedule.at_epochs={[*r.schedule.at_epochs]} must ascend, from schedule.warmup_epochs="
                f"{r.schedule.warmup_epochs:g} to below epochs={r.epochs:g}; set schedule.at_epochs too"
            )
    if r.batch_global % r.model.norm_span:
        raise UserError(
            f"batch_global={r.batch_global} is not divisible by model.norm_span={r.model.norm_span}; "
            f"use a span such as {math.gcd(r.batch_global, r.model.norm_span)}"
        )
    if r.torus != "auto":  # the torus, the batch and the span together
        lay_out(parse_torus(r.torus), r.batch_global, r.model.norm_span)
