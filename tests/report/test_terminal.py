"""What a person sees, compared with committed texts: a log file's lines, a terminal's live line, the summary. Names and
paths are shown as they were given, whatever rich would make of their brackets."""

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.support.clock import Clock
from tests.support.snapshots import assert_snapshot

from podium.report import events
from podium.report.terminal import Terminal, bottleneck, duration, work

SHOWN = Path(__file__).parent / "shown"
STARTED = events.Started(
    run="runs/[v2]", recipe="mine[/b]", torus="2x2", platform="simulated", steps=1200, first_step=0,
    train_images=50_000, validation_images=10_000, classes=10, batch_global=128, norm_span=64, parameters=2_780_000,
    cache="pixels", decoder="the native decoder (libjpeg-turbo)",
)  # fmt: skip
PROGRESS = events.Progress(
    step=20, epoch=0.0512, metrics={"loss": 2.30259, "top1": 0.125, "learning_rate": 0.0123456, "gradient_norm": 1.5},
    images_per_second=1234.5, input_bound=0.03, eta_seconds=3665.0,
)  # fmt: skip
HOSTS = events.Hosts(
    step=20, processes=4, step_seconds=0.9, input_wait_seconds=0.01, input_wait_seconds_most=0.41,
    input_wait_most_process=3, memory_bytes_most=10**9, memory_free_share_least=0.5,
    warning="process 3 on node3 is 1.8× slower: input",
)  # fmt: skip
EVALUATED = events.Evaluated(step=600, epoch=1.536, images=10_000, top1=0.8125, top5=0.98, loss=0.5678, seconds=4.25)
SUMMARY = events.Summary(
    accuracy=0.9412, top5=0.998, images_per_second=1234.5, train_seconds=3665.0, compile_seconds=41.6, input_bound=0.31,
    steps=1200, weights_hash="0" * 64, run="runs/[v2]", train_flops=2.965e14,
)  # fmt: skip


def seen(live=False, clock=None):
    """A terminal of 110 columns, and all that it has printed so far."""
    file = io.StringIO()
    console = Console(file=file, width=110, force_terminal=live, color_system=None, highlight=False, markup=False)
    return Terminal(console=console, clock=clock or Clock()), file.getvalue


def at(step, **changed):
    return dataclasses.replace(PROGRESS, step=step, epoch=step / 390.625, **changed)


def test_a_log_file_has_a_line_every_five_seconds_and_the_end():
    clock = Clock()
    terminal, text = seen(clock=clock)
    terminal.note("compiled in 41.6 s, see [docs]")
    terminal.started(dataclasses.replace(STARTED, first_step=16))
    for step in range(20, 140, 20):
        terminal.progress(at(step, eta_seconds=3700.0 - step))
        clock.advance(2.0)
    terminal.hosts(HOSTS)
    terminal.hosts(dataclasses.replace(HOSTS, warning="process 3 on node3 is 1.9× slower: input"))
    terminal.hosts(dataclasses.replace(HOSTS, warning=""))
    terminal.hosts(HOSTS)
    terminal.evaluated(EVALUATED)
    terminal.progress(at(1180, eta_seconds=1.0))
    terminal.progress(at(1200, eta_seconds=0.0, input_bound=0.31))
    terminal.finished(SUMMARY)
    assert_snapshot(SHOWN / "log.txt", text())


def test_a_loss_of_smoothed_labels_is_called_so_and_an_evaluation_s_is_not():
    terminal, text = seen()
    terminal.started(dataclasses.replace(STARTED, label_smoothing=0.1))
    terminal.progress(at(20))
    terminal.evaluated(EVALUATED)
    trained, evaluated = text().splitlines()[-2:]
    assert "  smoothed loss 2.303  " in trained
    assert "  loss 0.568  " in evaluated


def test_a_terminal_has_a_live_line():
    terminal, _ = seen(live=True)
    terminal.started(STARTED)
    terminal.progress(at(300, eta_seconds=65.0))
    shown = io.StringIO()
    Console(file=shown, width=110, color_system=None).print(terminal._live.get_renderable())
    terminal.close()
    assert_snapshot(SHOWN / "live.txt", shown.getvalue())


def test_preparing_shows_bars_until_each_stage_is_done():
    terminal, _ = seen(live=True)
    terminal.preparing("scanning archives", 3, 4)
    terminal.preparing("writing images", 10, 1000)
    assert [(task.description, task.completed, task.total) for task in terminal._bars.tasks] == [
        ("scanning archives", 3, 4),
        ("writing images", 10, 1000),
    ]
    terminal.preparing("scanning archives", 4, 4)
    assert [task.description for task in terminal._bars.tasks] == ["writing images"]
    terminal.preparing("writing images", 1000, 1000)
    assert terminal._bars is None


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "compute-bound 100%"), (0.03, "compute-bound 97%"), (0.1, "compute-bound 90%"), (0.31, "input-bound 31%")],
)
def test_the_bottleneck_is_named_with_its_own_share(share, words):
    assert bottleneck(share) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0:00"), (5, "0:05"), (65, "1:05"), (59.6, "1:00"), (3599, "59:59"), (3665, "1:01:05"), (90000, "25:00:00")],
)
def test_a_duration_has_two_digits_after_each_colon(seconds, words):
    assert duration(seconds) == words


def test_work_is_told_in_readable_units():
    assert work(2.973e14) == "0.297 PFLOP"
    assert work(1.65e17) == "165 PFLOP"
    assert work(4.1234e13) == "41.2 TFLOP"
