"""Trackers get every number under the names of metrics.jsonl. Against the real packages where they are installed."""

import sys
from dataclasses import replace
from types import ModuleType

import pytest
from tests.report.test_files import EVALUATED, PROGRESS

from podium.errors import UserError
from podium.report.events import Started
from podium.report.trackers import build_tracker

STARTED = Started(
    run="run", recipe="demo", torus="1x1", platform="simulated", steps=10, first_step=0, train_images=10,
    validation_images=10, classes=2, batch_global=2, norm_span=2, parameters=5, cache="none", decoder="",
)  # fmt: skip


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_named(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf"--track {name} needs the extra {name}; .* 'podium\[{name}\]'"):
        build_tracker(name, tmp_path, {})


@pytest.mark.slow
def test_weights_and_biases_gets_every_number(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    assert isinstance(wandb, ModuleType)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = build_tracker("wandb", tmp_path, {"optimizer.momentum": 0.9})
    tracker.started(STARTED)
    tracker.progress(PROGRESS)
    tracker.evaluated(replace(EVALUATED, step=PROGRESS.step + 1))
    tracker.progress(replace(PROGRESS, step=PROGRESS.step + 2))
    summary = dict(tracker._run.summary)  # type: ignore[attr-defined]
    tracker.close()
    assert summary["train/loss"] == PROGRESS.metrics["loss"]
    assert summary["evaluation/top1"] == EVALUATED.top1
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.slow
def test_mlflow_gets_every_number(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    tracker = build_tracker("mlflow", tmp_path / "run", {"optimizer.momentum": 0.9})
    tracker.started(STARTED)
    tracker.progress(PROGRESS)
    tracker.evaluated(EVALUATED)
    tracker.close()
    (found,) = mlflow.search_runs(experiment_names=["podium"], output_format="list")
    assert found.data.metrics["evaluation/top1"] == EVALUATED.top1
    assert found.data.params["optimizer.momentum"] == "0.9"
