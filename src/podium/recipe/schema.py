"""What a run is, as frozen typed data. A recipe is inert: it names no device and opens no file of images. Each field
says here what it means and which values it takes; values that cannot work together are one list, at the end.
Images stand in `recipe.images`, optimizers and schedules in `recipe.optimization`; `recipe.reading` makes recipes from
TOML files and `--set`.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from podium.errors import UserError
from podium.recipe.augmentation import Augment
from podium.recipe.bounds import above, also_called, at_least, below, check_bounds
from podium.recipe.images import Data
from podium.recipe.optimization import Muon, Optimizer, Schedule, Steps
from podium.recipe.torus import lay_out, parse_torus, spans_that_fit


@dataclass(frozen=True)
class Model:
    """The network."""

    norm_span: Annotated[
        int,
        above(0),
        "Number of examples that share batch-norm statistics. It means the same on any number of chips.",
    ]
    name: Annotated[
        str, also_called("arch", "architecture"), "The network: resnet50, resnet8, … (a wrong name lists them all)."
    ] = "resnet50"
    classes: Annotated[
        int, at_least(0), also_called("num_classes"), "Number of classes. 0: as many as the data has."
    ] = 0
    stem: Annotated[
        Literal["conv7", "space_to_depth", "conv3", "fold3", "patches"],
        "The first layer. conv7 for large images, conv3 for small ones; space_to_depth and fold3 are the same with "
        "pixels folded in pairs; patches is for resnet7 and plain7.",
    ] = "conv7"
    padding: Annotated[
        Literal["symmetric", "same"],
        "How the strided layers of a ResNet are padded: alike on both sides, as torchvision has them, or as XLA's SAME "
        "does, which is what Podium 0.1.0 trained with.",
    ] = "symmetric"
    norm_momentum: Annotated[
        float, at_least(0), below(1), "Share of batch norm's running statistics that a step keeps."
    ] = 0.9
    norm_epsilon: Annotated[float, above(0), "Added to the variance in batch norm."] = 1e-5
    last_scale: Annotated[
        float, "Initial scale of the last norm in each residual block. At 0 blocks start as the identity."
    ] = 0.0
    dropout: Annotated[
        float,
        at_least(0),
        below(1),
        also_called("drop", "drop_rate"),
        "Share of the values before the classifier that a training step drops.",
    ] = 0.0
    stochastic_depth: Annotated[
        float,
        at_least(0),
        below(1),
        also_called("drop_path", "drop_path_rate", "drop_connect"),
        "How often a training step drops the last block of a ResNet for an image; the blocks before it less, in a "
        "straight line down to never.",
    ] = 0.0
    blur: Annotated[
        bool,
        also_called("blurpool", "use_blurpool", "blur_pool"),
        "Whether a ResNet blurs what its layers of stride 2 take, the first layer's aside.",
    ] = False
    freeze: Annotated[
        str,
        "Layers that keep their weights, from the image on: none, stem, stage 1 (which includes the stem), stage 2 …, "
        "or all but classifier. For training from --weights.",
    ] = "none"
    freeze_norm: Annotated[
        Literal["frozen layers", "all", "none"],
        "Batch norms that normalise with their moving statistics while training, and keep them.",
    ] = "frozen layers"


@dataclass(frozen=True)
class Recipe:
    """One training run, as frozen data: the recipe file's keys as fields. It is checked when it is made.

    >>> from podium import load_recipe
    >>> recipe = load_recipe("demo", ["epochs=3", "model.norm_span=16"])
    >>> recipe.epochs, recipe.model.norm_span, recipe.optimizer.name
    (3.0, 16, 'sgd')
    >>> from dataclasses import replace
    >>> replace(recipe, epochs=-1)
    Traceback (most recent call last):
    podium.errors.UserError: epochs=-1 must be greater than 0
    """

    epochs: Annotated[float, above(0), "Passes over the training images."]
    batch_global: Annotated[
        int, above(0), also_called("batch_size", "batch", "global_batch_size"), "Examples per step, over all chips."
    ]
    model: Model
    optimizer: Optimizer
    schedule: Schedule
    data: Data = field(default_factory=Data)
    augment: Augment = field(default_factory=Augment)
    name: Annotated[str, "Names the run. Default: the recipe file's name."] = "custom"
    seed: Annotated[int, at_least(0), "Decides everything random: initial weights, the order of images, crops."] = 0
    torus: Annotated[
        str,
        also_called("mesh", "devices", "chips", "gpus"),
        "The grid of chips, ROWSxCOLS or ROWSxCOLSxLANES. A machine with only a CPU simulates them. auto: the "
        "chips that are there.",
    ] = "auto"
    precision: Annotated[
        Literal["auto", "bf16", "fp32"],
        also_called("dtype", "amp"),
        "Number format of convolutions. auto: bf16, but fp32 on a CPU.",
    ] = "auto"
    reduce: Annotated[
        Literal["auto", "xla", "ring", "torus", "woven", "swing", "exchange", "sockets"],
        "How gradients are summed over the chips. sockets: between processes, while the backward pass goes on, each "
        "bucket along the schedule that fits it. auto: xla; between the processes of CPUs, whichever of xla, torus and "
        "sockets a short measurement finds fastest.",
    ] = "auto"
    gradient_sum: Annotated[
        Literal["fp32", "bf16"],
        "Number format in which gradients travel between chips. bf16 halves the bytes and rounds the sums; each chip's "
        "own gradients, the weights and everything else stay fp32.",
    ] = "fp32"
    weight_update: Annotated[
        Literal["auto", "sharded", "replicated", "joined", "flat"],
        "Whether each chip updates its share of the weights or all of them; joined: all, with every vector in one; "
        "flat: all, in a few buffers. auto: sharded from 8 chips of a CPU on, joined on TPUs, flat on GPUs.",
    ] = "auto"
    bucket_mb: Annotated[
        float, above(0), "Gradients are summed in flat buckets of this size, in MB (replicated xla: in XLA's own)."
    ] = 25.0
    deterministic: Annotated[
        bool,
        "Whether GPUs must give the same bits in every run, as CPUs and TPUs do by themselves. It costs speed: sums in "
        "a fixed order, none of them in NVLink's switches, and cuDNN's default algorithms instead of those that are "
        "found fastest by timing.",
    ] = False
    loss: Annotated[
        Literal["cross_entropy", "binary"],
        also_called("criterion", "bce_loss", "bce"),
        "What is made small: the cross-entropy of the classes, or the mean over the classes of the binary one, as if "
        "each class were a question of its own.",
    ] = "cross_entropy"
    target_threshold: Annotated[
        float,
        at_least(0),
        below(1),
        also_called("bce_target_thresh"),
        "With the binary loss: a class whose share of a mixed image is larger than this counts as wholly there, "
        "another not at all. 0: each counts by its share.",
    ] = 0.0
    class_weights: Annotated[
        tuple[float, ...],
        above(0),
        "How much an image of each class counts in the loss, in the order of the classes' names. None: all alike.",
    ] = ()
    label_smoothing: Annotated[
        float, at_least(0), below(1), also_called("smoothing"), "Share of the target spread evenly over all classes."
    ] = 0.0
    accumulate: Annotated[
        int,
        above(0),
        also_called("accumulation_steps", "grad_accum"),
        "Parts into which each chip cuts its share of a batch, one after the other, so that a batch larger than memory "
        "fits. The losses are those of the whole at once.",
    ] = 1
    average_decay: Annotated[
        float,
        at_least(0),
        below(1),
        also_called("ema", "ema_decay", "model_ema_decay"),
        "Share of the averaged weights that a step keeps, less in the first steps. Evaluations, predictions and "
        "exports then use the average; the weights themselves are evaluated beside it. 0: none is kept.",
    ] = 0.0
    evaluate_flips: Annotated[
        bool, also_called("tta"), "Whether an evaluation takes the mean answer to each image and its mirror image."
    ] = False
    evaluate_shift: Annotated[
        int,
        at_least(0),
        "Pixels by which an evaluation also moves each image, up and left and down and right, with reflected borders; "
        "the two moved answers count as much as the unmoved one. 0: none is moved.",
    ] = 0
    evaluate_every_epochs: Annotated[
        float, above(0), also_called("eval_every"), "Epochs between evaluations; the last step is always evaluated."
    ] = 4.0
    steps_per_dispatch: Annotated[int, above(0), "Training steps that the device takes without asking the host."] = 1
    log_every_steps: Annotated[int, above(0), "Steps between lines in the log."] = 10
    max_lost_steps: Annotated[
        int, above(0), "Most steps that a kill at any moment may lose; a checkpoint is begun every half of it."
    ] = 200

    def __post_init__(self) -> None:
        check_bounds(self)
        for conflict in _conflicts(self):
            raise UserError(conflict)
        if self.torus != "auto":  # the torus, the batch and the span together
            lay_out(parse_torus(self.torus), self.batch_global, self.model.norm_span)

    @property
    def train_steps(self) -> int:
        """A whole number of dispatches, so that a run compiles one program."""
        dispatches = self.epochs * self.data.train_images / self.batch_global / self.steps_per_dispatch
        return max(1, round(dispatches)) * self.steps_per_dispatch

    def size_at(self, step: int) -> int:
        """The size of training images in the dispatch that `step` belongs to."""
        return self.sizes_from(step)[0]

    def sizes_from(self, step: int) -> tuple[int, ...]:
        """That size, and those that follow it."""
        first = step - step % self.steps_per_dispatch
        return self.data.sizes_from(first * self.batch_global / self.data.train_images)

    def for_data(self, classes: int, train_images: int, validation_images: int) -> "Recipe":
        """This recipe with the numbers of a real data set filled in."""
        if self.model.classes not in (0, classes):
            raise UserError(
                f"model.classes={self.model.classes} and the data has {classes} classes; "
                f"use --set model.classes=0 to take the data's"
            )
        if self.class_weights and len(self.class_weights) != classes:
            raise UserError(
                f"class_weights has {len(self.class_weights)} numbers and the data has {classes} classes; give one for "
                f"each, or data.balance=loss"
            )
        data = dataclasses.replace(self.data, train_images=train_images, validation_images=validation_images)
        return dataclasses.replace(self, data=data, model=dataclasses.replace(self.model, classes=classes))


def _conflicts(r: Recipe) -> Iterator[str]:
    """Fields that are each within their bounds and cannot work together: what is wrong, and what to do."""
    if r.max_lost_steps < 2 * r.steps_per_dispatch:
        yield (
            f"max_lost_steps={r.max_lost_steps} cannot be kept with steps_per_dispatch={r.steps_per_dispatch}; "
            f"use {2 * r.steps_per_dispatch} or more: a checkpoint is written while the next dispatch runs"
        )
    warmup = r.schedule.warmup_epochs
    if warmup >= r.epochs:
        yield f"schedule.warmup_epochs={warmup:g} must be below epochs={r.epochs:g}; lower one or raise the other"
    if isinstance(r.schedule, Steps):
        ends = (warmup, *r.schedule.at_epochs, r.epochs)
        if list(ends) != sorted(ends) or r.epochs in r.schedule.at_epochs:
            yield (
                f"schedule.at_epochs={[*r.schedule.at_epochs]} must ascend, from schedule.warmup_epochs={warmup:g} "
                f"to below epochs={r.epochs:g}; set schedule.at_epochs too"
            )
    sizes, epochs = r.data.early_sizes, r.data.early_epochs
    if len(sizes) != len(epochs) or [*epochs, r.epochs] != sorted({*epochs, r.epochs}):
        yield (
            f"data.early_sizes={[*sizes]} and data.early_epochs={[*epochs]} must be equally many, the epochs ascending "
            f"to below epochs={r.epochs:g}"
        )
    if r.target_threshold and r.loss != "binary":
        yield 'target_threshold does nothing with loss="cross_entropy"; leave it out, or use loss="binary"'
    if r.class_weights and r.data.balance == "loss":
        yield 'class_weights and data.balance="loss" both weigh classes; leave one out'
    if r.augment.mixes and r.batch_global % 2:
        yield f"augment.mixup and cutmix mix images in pairs, and batch_global={r.batch_global} is odd; make it even"
    if isinstance(r.optimizer, Muon) and r.weight_update not in ("auto", "replicated"):
        yield (
            f"weight_update={r.weight_update!r} cuts or joins tensors, and optimizer.name='muon' needs them whole; "
            f'use weight_update="replicated"'
        )
    if r.batch_global % r.model.norm_span:
        yield (
            f"batch_global={r.batch_global} is not divisible by model.norm_span={r.model.norm_span}; "
            f"{spans_that_fit(r.batch_global, r.model.norm_span)}"
        )
