"""What a run is, as frozen typed data: read from TOML, changed with `--set key=value`, checked before any device is
touched. A recipe is inert: it names no device and opens no file of images. An unknown key, a wrong type or a
combination that cannot work ends in one line that says what to write instead.
"""

import dataclasses
import difflib
import json
import math
import tomllib
import types
import typing
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from podium.errors import UserError


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


def load(name_or_file: str, overrides: typing.Sequence[str] = ()) -> Recipe:
    """A shipped recipe by name, or a TOML file by path, with `key=value` overrides applied."""
    text, name = _read(name_or_file)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name_or_file} is not valid TOML: {error}") from None
    table.setdefault("name", name)
    for override in overrides:
        _apply(table, override)
    return _build(Recipe, table, "")


def from_dict(table: dict[str, Any]) -> Recipe:
    return _build(Recipe, table, "")


def to_dict(recipe: Recipe) -> dict[str, Any]:
    """Plain JSON types; `from_dict` gives the same recipe back."""
    return typing.cast(dict[str, Any], json.loads(json.dumps(dataclasses.asdict(recipe))))


def shipped() -> list[str]:
    folder = resources.files("podium") / "recipe" / "shipped"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def _read(name_or_file: str) -> tuple[str, str]:
    if name_or_file in shipped():
        return (resources.files("podium") / "recipe" / "shipped" / f"{name_or_file}.toml").read_text(), name_or_file
    path = Path(name_or_file)
    if path.suffix == ".toml" or path.is_file():
        try:
            return path.read_text(), path.stem
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"recipe file {name_or_file} cannot be read: {error}; give a TOML file") from None
    raise UserError(
        f"there is no recipe {name_or_file!r}{_suggest(name_or_file, shipped())}; "
        f"shipped are {', '.join(shipped())}, or give a .toml file"
    )


def _apply(table: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override!r} is not key=value; write for example --set epochs=10")
    *sections, leaf = key.strip().split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {override!r}: {section!r} is a value, not a section")
    try:
        table[leaf] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[leaf] = value.strip()  # a bare word is a string: --set torus=2x4
    for left_over in _not_of(key.strip(), table[leaf]):  # by the optimizer or schedule that was there before
        table.pop(left_over, None)


def _build(cls: Any, table: dict[str, Any], where: str) -> Any:
    """A dataclass from a table, checking every key and type. `where` is the section, for messages."""
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}
    for key in table:
        if f"{where}{key}" in _all_keys() and key not in known:
            tag = next(iter(known))
            raise UserError(f"{where}{key} does nothing with {where}{tag}={table[tag]!r}; leave it out")
        if key not in known:
            raise UserError(f"unknown key {where}{key}{_suggest(key, _all_keys(), where)}")
    missing = [
        name for name, f in known.items()
        if name not in table and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]  # fmt: skip
    if missing:
        raise UserError(f"the recipe lacks {where}{missing[0]}; add it, or --set {where}{missing[0]}=…")
    return cls(**{key: _convert(hints[key], value, f"{where}{key}") for key, value in table.items()})


def _convert(hint: Any, value: Any, key: str) -> Any:
    origin = typing.get_origin(hint)
    if isinstance(hint, types.UnionType):
        return _choose_section(typing.get_args(hint), value, key)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise UserError(f"{key}={value!r} must be a section; write [{key}] in the recipe")
        return _build(hint, value, f"{key}.")
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise UserError(f"{key}={value!r} is not one of {', '.join(choices)}{_suggest(str(value), choices)}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{key}={value!r} must be a list of numbers, such as [30, 60, 80]")
        return tuple(_convert(typing.get_args(hint)[0], item, key) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise UserError(f"{key}={value!r} must be {_a_name(hint)}, not {_a_name(type(value))}")
    if hint is float and not math.isfinite(value):
        raise UserError(f"{key}={value!r} must be a finite number")
    return value


def _choose_section(choices: tuple[Any, ...], value: Any, key: str) -> Any:
    """One of several sections, told apart by its first field (`name` of an optimizer, `decay` of a schedule)."""
    tag, by_name = _tagged(choices)
    chosen = value.get(tag) if isinstance(value, dict) else None
    if not isinstance(chosen, str) or chosen not in by_name:
        raise UserError(f"{key}.{tag}={chosen!r} must be one of {', '.join(by_name)}")
    return _build(by_name[chosen], value, f"{key}.")


def _tagged(choices: tuple[Any, ...]) -> tuple[str, dict[str, Any]]:
    tag = dataclasses.fields(choices[0])[0].name
    return tag, {typing.get_args(typing.get_type_hints(c)[tag])[0]: c for c in choices}


def _not_of(key: str, chosen: Any) -> set[str]:
    """The fields that the others of a kind have and `chosen` has not, if `key` chooses one of them."""
    for section, kinds in (("optimizer", typing.get_args(Optimizer)), ("schedule", typing.get_args(Schedule))):
        tag, by_name = _tagged(kinds)
        if key == f"{section}.{tag}" and isinstance(chosen, str) and chosen in by_name:
            of_all = {f.name for kind in kinds for f in dataclasses.fields(kind)}
            return of_all - {f.name for f in dataclasses.fields(by_name[chosen])}
    return set()


def _all_keys() -> list[str]:
    sections = {
        "data": (Data,),
        "model": (Model,),
        "optimizer": typing.get_args(Optimizer),
        "schedule": typing.get_args(Schedule),
    }
    keys = [f.name for f in dataclasses.fields(Recipe)]
    for section, classes in sections.items():
        keys += sorted({f"{section}.{f.name}" for c in classes for f in dataclasses.fields(c)})
    return keys


def _suggest(given: str, choices: typing.Iterable[str], where: str = "") -> str:
    """' (did you mean …?)': the nearest choice, where a key in its right section counts as near."""
    choices = list(choices)
    same_leaf = [c for c in choices if c.rsplit(".", 1)[-1] == given]
    near = difflib.get_close_matches(f"{where}{given}", choices, 1) or difflib.get_close_matches(given, choices, 1)
    found = same_leaf or near
    return f" (did you mean {found[0]}?)" if found else ""


def _a_name(kind: type) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", list: "a list"}
    return names.get(kind, f"a {kind.__name__}")


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
    if r.torus != "auto":
        from podium.mesh import lay_out, parse_torus

        lay_out(parse_torus(r.torus), r.batch_global, r.model.norm_span)
