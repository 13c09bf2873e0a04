"""Reads a run's metrics behind the devices' backs: those of a dispatch when two later ones have been sent, so the host
never holds up the devices it feeds. Keeps the time of training, evaluating and waiting for input apart.
"""

import math
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil

from podium.data.input.prefetch import Feed
from podium.errors import UserError
from podium.processes import agree
from podium.processes.join import is_first, process_count
from podium.recipe.schema import Recipe
from podium.report import events
from podium.report.hosts import ProcessTimes, compare
from podium.step.state import Metrics

DISPATCHES_AHEAD = 2


@dataclass
class Meter:
    """Reads metrics behind the devices' backs, checks the loss, and keeps the time."""

    recipe: Recipe
    listener: events.Listener
    first_step: int
    gone_wrong: Callable[[str], UserError]
    _pending: deque[tuple[int, Metrics]] = field(default_factory=deque)
    _window: list[dict[str, np.ndarray]] = field(default_factory=list)
    _train_seconds: float = 0.0
    _eval_seconds: float = 0.0
    _wait_seconds: float = 0.0
    _window_began: tuple[float, float] = (0.0, 0.0)
    _steps_done: int = 0

    def __post_init__(self) -> None:
        self._clock = time.perf_counter()

    def next_batch(self, feed: Feed) -> Any:
        """The next batch. Only a wait while the devices have nothing left to do counts as waiting for input."""
        if not feed.ready() and self._pending:
            jax.block_until_ready(self._pending[-1][1])
        began = time.perf_counter()
        batch = next(feed)
        self._wait_seconds += time.perf_counter() - began
        return batch

    def sent(self, step: int, metrics: Metrics) -> None:
        self._pending.append((step, metrics))
        while len(self._pending) > DISPATCHES_AHEAD:
            self._read()

    def settle(self) -> None:
        """Waits for everything sent, before an evaluation or the end."""
        while self._pending:
            self._read()
        self._train_seconds = self._now()
        self._paused = time.perf_counter()

    def resume(self) -> None:
        paused = time.perf_counter() - self._paused
        self._eval_seconds += paused
        self._clock += paused

    def dispatch_seconds(self) -> float:
        """What a dispatch takes; before the first is read, what it has taken so far."""
        return self._now() / max(1, self._steps_done // self.recipe.steps_per_dispatch)

    def summary(self, evaluation: events.Evaluated, compile_seconds: float, run: Path, weights: str) -> events.Summary:
        seconds = max(self._train_seconds, 1e-9)
        return events.Summary(
            accuracy=evaluation.top1,
            top5=evaluation.top5,
            images_per_second=self._steps_done * self.recipe.batch_global / seconds,
            train_seconds=self._train_seconds + self._eval_seconds,
            compile_seconds=compile_seconds,
            input_bound=self._wait_seconds / seconds,
            steps=self.recipe.train_steps,
            weights_hash=weights,
            run=str(run),
        )

    def _now(self) -> float:
        return time.perf_counter() - self._clock

    def _read(self) -> None:
        step, metrics = self._pending.popleft()
        values = jax.device_get(metrics)
        for i, loss in enumerate(values["loss"]):
            if not math.isfinite(loss):
                at = step - len(values["loss"]) + i + 1
                raise self.gone_wrong(f"the loss is {loss} at step {at}")
        self._window.append(values)
        self._steps_done += len(values["loss"])
        if sum(len(v["loss"]) for v in self._window) >= self.recipe.log_every_steps or step == self.recipe.train_steps:
            self._report(step)

    def _report(self, step: int) -> None:
        now, mean = (
            self._now(),
            {name: np.concatenate([v[name] for v in self._window]) for name in self._window[0]},
        )
        seconds = max(now - self._window_began[0], 1e-9)
        waited = self._wait_seconds - self._window_began[1]
        rate = len(mean["loss"]) * self.recipe.batch_global / seconds
        left = (self.recipe.train_steps - step) / max(1, step - self.first_step) * (now + self._eval_seconds)
        self.listener.progress(
            events.Progress(
                step=step,
                epoch=step / (self.recipe.data.train_images / self.recipe.batch_global),
                loss=float(mean["loss"].mean()),
                top1=float(mean["top1"].mean()),
                learning_rate=float(mean["learning_rate"][-1]),
                images_per_second=rate,
                input_bound=min(1.0, waited / seconds),
                eta_seconds=left,
            )
        )
        if process_count() > 1:
            self._compare_hosts(step, seconds / len(mean["loss"]), waited / len(mean["loss"]))
        self._window, self._window_began = [], (now, self._wait_seconds)

    def _compare_hosts(self, step: int, step_seconds: float, input_wait_seconds: float) -> None:
        """Process 0 speaks of what each process has posted last; no process waits for another."""
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
            times = {process: ProcessTimes(**said) for process, said in agree.posted("times").items()}
            self.listener.hosts(compare(step, times))
