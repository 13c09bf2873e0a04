"""What a run tells the outside world, and the interface of those who listen: the terminal, metrics.jsonl,
TensorBoard.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Started:
    run: str
    recipe: str
    torus: str
    platform: str
    steps: int
    first_step: int
    train_images: int
    validation_images: int
    classes: int
    batch_global: int
    norm_span: int
    parameters: int
    cache: str
    decoder: str


@dataclass(frozen=True)
class Progress:
    """Means over the steps since the last report."""

    step: int
    epoch: float
    loss: float
    top1: float
    learning_rate: float
    images_per_second: float
    input_bound: float
    """The share of the time in which the devices waited for images."""
    eta_seconds: float


@dataclass(frozen=True)
class Hosts:
    """All processes of a run side by side, as each last told of itself; seconds are per step."""

    step: int
    processes: int
    step_seconds: float
    input_wait_seconds: float
    """How long a process's devices stood idle for its input: the median process's, and the worst's."""
    input_wait_seconds_most: float
    input_wait_most_process: int
    memory_bytes_most: int
    memory_free_share_least: float
    warning: str
    """Which process holds up the others and why; empty if none does."""


@dataclass(frozen=True)
class Evaluated:
    step: int
    epoch: float
    images: int
    top1: float
    top5: float
    loss: float
    seconds: float


@dataclass(frozen=True)
class Summary:
    accuracy: float
    top5: float
    images_per_second: float
    train_seconds: float
    compile_seconds: float
    input_bound: float
    steps: int
    weights_hash: str
    run: str


class Listener:
    """Hears of each event; the default is to ignore it."""

    def note(self, message: str) -> None: ...
    def started(self, event: Started) -> None: ...
    def progress(self, event: Progress) -> None: ...
    def hosts(self, event: Hosts) -> None: ...
    def evaluated(self, event: Evaluated) -> None: ...
    def finished(self, event: Summary) -> None: ...
    def close(self) -> None: ...


class Everyone(Listener):
    """Passes each event on to several listeners, in order."""

    def __init__(self, *listeners: Listener) -> None:
        def passed_on(name: str) -> Any:
            return lambda *event: [getattr(listener, name)(*event) for listener in listeners] and None

        for name in ("note", "started", "progress", "hosts", "evaluated", "finished", "close"):
            setattr(self, name, passed_on(name))
