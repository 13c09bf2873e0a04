"""What a run reports, and the interface of those who listen: the terminal, metrics.jsonl, TensorBoard."""

from collections.abc import Mapping
from dataclasses import dataclass


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
    label_smoothing: float = 0.0


@dataclass(frozen=True)
class Progress:
    """The steps since the last report."""

    step: int
    epoch: float
    metrics: Mapping[str, float]
    """Whatever the step returns, by name: the mean over these steps; of the learning rate the last."""
    images_per_second: float
    input_bound: float
    """The share of the time in which the devices waited for images."""
    eta_seconds: float


@dataclass(frozen=True)
class Hosts:
    """All processes of a run side by side, as each last reported itself; seconds are per step."""

    step: int
    processes: int
    step_seconds: float
    input_wait_seconds: float
    """How long a process's devices stood idle for its input: the median process's, then the straggler's."""
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
    raw_top1: float | None = None
    """Where the run averages its weights, whose figures these are: top-1 of the weights themselves."""

    def figures(self) -> dict[str, float]:
        """By name, as charts have them."""
        raw = {} if self.raw_top1 is None else {"raw_top1": self.raw_top1}
        return {"loss": self.loss, "top1": self.top1, "top5": self.top5, **raw}


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
    train_flops: float = 0.0
    """The operations of the convolutions and matrix products of all steps, forward, backward and in the update
    (`step.work`); 0 in a summary that was written before they were counted."""


class Listener:
    """Receives each event; the default is to ignore it."""

    def note(self, message: str) -> None: ...
    def preparing(self, stage: str, done: int, total: int) -> None: ...
    def started(self, event: Started) -> None: ...
    def progress(self, event: Progress) -> None: ...
    def hosts(self, event: Hosts) -> None: ...
    def evaluated(self, event: Evaluated) -> None: ...
    def finished(self, event: Summary) -> None: ...
    def close(self) -> None: ...


class Broadcast(Listener):
    """Passes each event on to several listeners, in order."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def note(self, message: str) -> None:
        for listener in self._listeners:
            listener.note(message)

    def preparing(self, stage: str, done: int, total: int) -> None:
        for listener in self._listeners:
            listener.preparing(stage, done, total)

    def started(self, event: Started) -> None:
        for listener in self._listeners:
            listener.started(event)

    def progress(self, event: Progress) -> None:
        for listener in self._listeners:
            listener.progress(event)

    def hosts(self, event: Hosts) -> None:
        for listener in self._listeners:
            listener.hosts(event)

    def evaluated(self, event: Evaluated) -> None:
        for listener in self._listeners:
            listener.evaluated(event)

    def finished(self, event: Summary) -> None:
        for listener in self._listeners:
            listener.finished(event)

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
