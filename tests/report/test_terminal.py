"""What a person sees: names and paths as they were given, whatever rich would make of their brackets."""

import io

import pytest

from podium.report import events
from podium.report.terminal import Terminal

STARTED = events.Started(
    run="runs/[v2]", recipe="mine[/b]", torus="2x2", platform="cpu", steps=10, first_step=0, train_images=5,
    validation_images=2, classes=3, batch_global=4, norm_span=4, parameters=1000, cache="pixels", decoder="native",
)  # fmt: skip


@pytest.fixture
def shown():
    """A terminal, and all that it has printed so far."""
    terminal = Terminal()
    terminal.console.file = io.StringIO()
    return terminal, terminal.console.file.getvalue


def test_brackets_in_names_and_paths_are_shown(shown):
    terminal, text = shown
    terminal.started(STARTED)
    terminal.note("see [docs]")
    assert "mine[/b]: 5 images" in text()
    assert "run runs/[v2] ·" in text()
    assert "see [docs]" in text()


def test_an_evaluation_is_shown_without_tags(shown):
    terminal, text = shown
    terminal.evaluated(events.Evaluated(step=1, epoch=0.5, top1=0.25, top5=0.5, loss=1.5, images=20, seconds=2.0))
    assert text() == "evaluation at epoch 0.5: top-1 25.00%  top-5 50.00%  loss 1.500  (20 images, 2.0 s)\n"
