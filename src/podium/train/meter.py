"""Reads a run's metrics behind the devices' backs: those of a dispatch when two later ones have been sent, so the host
never holds up the devices it feeds. Keeps the time of training, evaluating and waiting for input apart. Which metrics
there are is the step's business: whatever it returns by name is averaged and reported by that name.
"""

import math
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import jax
import numpy as np
import psutil

from podium.processes import agree
from podium.processes.join import is_first, process_count
from podium.recipe.schema import Recipe
from podium.report import events
from podium.report.hosts import ProcessTimes, compare
from podium.step.state import Metrics
from podium.train.checkpoint import NotFinite

DISPATCHES_AHEAD = 2


class Batches(Protocol):
    def ready(self) -> bool: ...
    def __next__(self) -> Any: ...


@dataclass(frozen=True)
class Totals:
    """A run from `start` to the last `drain`, without what came before a restart."""

    images_per_second: float
    """While training, without evaluations."""
    seconds: float
    """Training and evaluations."""
    input_bound: float
    """The share of training in which the devices waited for images."""


class Meter:
    """Reports the means of metrics, refuses a loss that is not finite, and keeps the time, as `clock` tells it."""

    def __init__(
        self,
        recipe: Recipe,
        listener: events.Listener,
        first_step: int,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._recipe, self._listener, self._first_step, self._clock = recipe, listener, first_step, clock
        self._pending: deque[tuple[int, Metrics]] = deque()
        self._window: list[dict[str, np.ndarray]] = []
        self._window_train_seconds = self._window_wait_seconds = 0.0  # when the window was opened
        self._train_seconds = self._eval_seconds = self._wait_seconds = 0.0
        self._steps_done = 0
        self._began = self._paused = clock()

    def start(self) -> None:
        """Counts the time from now on."""
        self._began = self._clock()

    def next_batch(self, batches: Batches) -> Any:
        """The next batch. Only a wait while the devices have nothing left to do counts as waiting for input."""
        if not batches.ready() and self._pending:
            jax.block_until_ready(self._pending[-1][1])
        began = self._clock()
        batch = next(batches)
        self._wait_seconds += self._clock() - began
        return batch

    def sent(self, step: int, metrics: Metrics) -> None:
        """Takes the metrics of the dispatch that ends with `step`, and reads those that are due."""
        self._pending.append((step, metrics))
        while len(self._pending) > DISPATCHES_AHEAD:
            self._read()

    def drain(self) -> None:
        """Waits for everything sent, before an evaluation or the end."""
        while self._pending:
            self._read()
        self._train_seconds = self._now()
        self._paused = self._clock()

    def resume(self) -> None:
        """Counts what has passed since `drain` as evaluation, not as training."""
        paused = self._clock() - self._paused
        self._eval_seconds += paused
        self._began += paused

    def dispatch_seconds(self) -> float:
        """What a dispatch takes; before the first is read, what it has taken so far."""
        return self._now() / max(1, self._steps_done // self._recipe.steps_per_dispatch)

    def totals(self) -> Totals:
        seconds = max(self._train_seconds, 1e-9)
        return Totals(
            images_per_second=self._steps_done * self._recipe.batch_global / seconds,
            seconds=self._train_seconds + self._eval_seconds,
            input_bound=self._wait_seconds / seconds,
        )

    def _now(self) -> float:
        """Seconds of training so far."""
        return self._clock() - self._began

    def _read(self) -> None:
        step, metrics = self._pending.popleft()
        values = jax.device_get(metrics)
        for i, loss in enumerate(values["loss"]):
            if not math.isfinite(loss):
                raise NotFinite(f"the loss is {loss} at step {step - len(values['loss']) + i + 1}")
        self._window.append(values)
        self._steps_done += len(values["loss"])
        steps_in_window = sum(len(v["loss"]) for v in self._window)
        if steps_in_window >= self._recipe.log_every_steps or step == self._recipe.train_steps:
            self._report(step, steps_in_window)

    def _report(self, step: int, steps: int) -> None:
        now = self._now()
        seconds = max(now - self._window_train_seconds, 1e-9)
        waited = self._wait_seconds - self._window_wait_seconds
        seconds_per_step = (now + self._eval_seconds) / max(1, step - self._first_step)
        self._listener.progress(
            events.Progress(
                step=step,
                epoch=step / (self._recipe.data.train_images / self._recipe.batch_global),
                metrics=_summarised(self._window),
                images_per_second=steps * self._recipe.batch_global / seconds,
                input_bound=min(1.0, waited / seconds),
                eta_seconds=(self._recipe.train_steps - step) * seconds_per_step,
            )
        )
        if process_count() > 1:
            self._compare_hosts(step, seconds / steps, waited / steps)
        self._window, self._window_train_seconds, self._window_wait_seconds = [], now, self._wait_seconds

    def _compare_hosts(self, step: int, step_seconds: float, input_wait_seconds: float) -> None:
        """Process 0 reports what each process has posted last; no process waits for another."""
        memory = psutil.virtual_memory()
        mine = ProcessTimes(
            host=socket.gethostname(),
            step_seconds=step_seconds,
            input_wait_seconds=input_wait_seconds,
            memory_bytes=psutil.Process().memory_info().rss,
            memory_free_share=memory.available / memory.total,
        )
        agree.post("times", asdict(mine))
        if is_first():
            times = {process: ProcessTimes(**posted) for process, posted in agree.posted("times").items()}
            self._listener.hosts(compare(step, times))


def _summarised(window: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """The mean of each metric over the steps of a window; of the learning rate, which is set and not measured, the
    last."""
    values = {name: np.concatenate([of_dispatch[name] for of_dispatch in window]) for name in window[0]}
    return {name: float(v[-1] if name == "learning_rate" else v.mean()) for name, v in values.items()}
