"""Experiment trackers as listeners: Weights & Biases and MLflow, each an extra. They get what metrics.jsonl gets, under
the same names. Where they keep it is theirs to say (`wandb login`, WANDB_MODE=offline, MLFLOW_TRACKING_URI).
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from podium.errors import UserError
from podium.report.events import Evaluated, Listener, Progress, Started, Summary

Tracker = Literal["wandb", "mlflow"]
_PARAMETER_MOST = 500  # characters of a value, in MLflow


def build_tracker(name: Tracker, run: Path, recipe: Mapping[str, Any]) -> Listener:
    """The listener of that name; `recipe` is what it notes about the run, by keys with dots."""
    return {"wandb": WeightsAndBiases, "mlflow": MLflow}[name](run, recipe)


class _Scalars(Listener):
    """Turns events into named numbers."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        raise NotImplementedError

    def progress(self, event: Progress) -> None:
        rates = {"images_per_second": event.images_per_second, "input_bound": event.input_bound}
        self.log({f"train/{name}": value for name, value in {**event.metrics, **rates}.items()}, event.step)

    def evaluated(self, event: Evaluated) -> None:
        self.log({f"evaluation/{name}": value for name, value in event.figures().items()}, event.step)


class WeightsAndBiases(_Scalars):
    """One run of the project "podium"; a run that resumes stays in the same."""

    def __init__(self, run: Path, recipe: Mapping[str, Any]) -> None:
        self._wandb = _module("wandb")
        self._run_directory, self._recipe, self._run = run, dict(recipe), None

    def started(self, event: Started) -> None:
        path = str(self._run_directory.absolute())
        self._run = self._wandb.init(
            project="podium",
            name=self._run_directory.name,
            id=hashlib.sha256(path.encode()).hexdigest()[:16],
            resume="allow",
            dir=path,
            config=self._recipe,
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        if self._run is not None:
            self._run.log(dict(values), step=step)

    def finished(self, event: Summary) -> None:
        if self._run is not None:
            self._run.summary.update({"accuracy": event.accuracy, "images_per_second": event.images_per_second})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


class MLflow(_Scalars):
    """One run of the experiment "podium", in mlflow.db of the working directory without MLFLOW_TRACKING_URI."""

    def __init__(self, run: Path, recipe: Mapping[str, Any]) -> None:
        self._mlflow = _module("mlflow")
        self._name, self._recipe, self._active = run.name, dict(recipe), False

    def started(self, event: Started) -> None:
        if not self._mlflow.environment_variables.MLFLOW_TRACKING_URI.get():
            self._mlflow.set_tracking_uri("sqlite:///mlflow.db")
        self._mlflow.set_experiment("podium")
        self._mlflow.start_run(run_name=self._name)
        self._active = True
        self._mlflow.log_params({key: str(value)[:_PARAMETER_MOST] for key, value in self._recipe.items()})

    def log(self, values: Mapping[str, float], step: int) -> None:
        if self._active:
            self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        if self._active:
            self._mlflow.end_run()


def _module(name: str) -> ModuleType:
    """The tracker's own package, which is an extra."""
    try:
        return __import__(name)
    except ImportError:
        raise UserError(f"--track {name} needs the extra {name}; install it: pip install 'podium[{name}]'") from None
