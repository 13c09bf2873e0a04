"""What a person sees: a live progress line in a terminal, plain lines elsewhere, and a summary at the end."""

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)  # fmt: skip
from rich.table import Table
from rich.text import Text

from podium.host.names import printable
from podium.report import events

_PLAIN_SECONDS = 5.0  # between the lines of a log file


def bottleneck(input_bound: float) -> str:
    """'input-bound 31%' where the devices wait for images more than a little, else 'compute-bound 97%'."""
    return f"input-bound {input_bound:.0%}" if input_bound > 0.1 else f"compute-bound {1 - input_bound:.0%}"


def duration(seconds: float) -> str:
    """'1:05', or with hours '2:01:05'."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def work(flops: float) -> str:
    """'0.297 PFLOP', or with fewer '41.2 TFLOP'."""
    return f"{flops / 1e15:.3g} PFLOP" if flops >= 1e14 else f"{flops / 1e12:.3g} TFLOP"


def _numbers(event: events.Progress, loss: str) -> str:
    return (
        f"epoch {event.epoch:.1f}  {loss} {event.metrics['loss']:.3f}  lr {event.metrics['learning_rate']:.3g}  "
        f"{event.images_per_second:,.0f} images/s  {bottleneck(event.input_bound)}"
    )


class Terminal(events.Listener):
    """Prints to standard output, or where that must stay clean (`quiet`) to standard error; live if it is a terminal.
    `clock` spaces the lines of a log file."""

    def __init__(
        self,
        quiet: bool = False,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Notes carry paths and names as a user gave them, and [v2] is none of rich's tags.
        file = sys.stderr if quiet else sys.stdout
        self.console = console or Console(file=file, highlight=False, markup=False)
        self._clock, self._last_line = clock, float("-inf")
        self._live: Progress | None = None
        self._task: TaskID | None = None
        self._bars: Progress | None = None
        self._stages: dict[str, TaskID] = {}
        self._steps, self._loss = 0, "loss"
        self._warned = ""

    def note(self, message: str) -> None:
        self.console.print(printable(message), style="dim", soft_wrap=True)

    def preparing(self, stage: str, done: int, total: int) -> None:
        """Shows a bar for each stage of preparing images, as long as there is something left of one."""
        if self._bars is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bars = Progress(*columns, console=self.console, transient=True)
            self._bars.start()
        if stage not in self._stages:
            self._stages[stage] = self._bars.add_task(stage, total=total)
        self._bars.update(self._stages[stage], completed=done)
        if done >= total:
            self._bars.remove_task(self._stages.pop(stage))
        if not self._stages:
            self._bars.stop()
            self._bars = None

    def started(self, event: events.Started) -> None:
        self.close()
        self._steps = event.steps
        self._loss = "smoothed loss" if event.label_smoothing else "loss"  # evaluation's is of plain labels
        self.console.print(
            f"[bold]{escape(printable(event.recipe))}[/]: {event.train_images:,} images, {event.classes} classes, "
            f"{event.parameters / 1e6:.2f} M parameters; batch {event.batch_global} on {event.torus} {event.platform} "
            f"chips, batch norm over {event.norm_span} examples",
            markup=True,
            soft_wrap=True,
        )
        self.note(f"run {event.run} · cache {event.cache} · {event.decoder}")
        if event.first_step:
            self.console.print(f"resumes after step {event.first_step:,} of {event.steps:,}")
        if self.console.is_terminal:
            columns: list[ProgressColumn] = [
                TextColumn("[bold]step {task.completed:.0f}/{task.total:.0f}"),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[numbers]}"),
                _Eta(),
            ]
            self._live = Progress(*columns, console=self.console)
            self._task = self._live.add_task("", total=event.steps, completed=event.first_step, numbers="", eta="")
            self._live.start()

    def progress(self, event: events.Progress) -> None:
        eta = f"ETA {duration(event.eta_seconds)}"
        if self._live is not None and self._task is not None:
            self._live.update(self._task, completed=event.step, numbers=_numbers(event, self._loss), eta=eta)
        elif self._clock() - self._last_line >= _PLAIN_SECONDS or event.step >= self._steps:
            self._last_line = self._clock()
            self.console.print(f"step {event.step}/{self._steps}  {_numbers(event, self._loss)}  {eta}", soft_wrap=True)

    def hosts(self, event: events.Hosts) -> None:
        about = event.warning.partition(" is ")[0]  # the figure changes from report to report
        if about and about != self._warned:
            self.console.print(printable(event.warning), style="yellow", soft_wrap=True)
        self._warned = about

    def evaluated(self, event: events.Evaluated) -> None:
        raw = "" if event.raw_top1 is None else f"  (not averaged: {event.raw_top1:.2%})"
        self.console.print(
            f"evaluation at epoch {event.epoch:.1f}: [bold]top-1 {event.top1:.2%}[/]{raw}  top-5 {event.top5:.2%}  "
            f"loss {event.loss:.3f}  ({event.images:,} images, {event.seconds:.1f} s)",
            markup=True,
            soft_wrap=True,
        )

    def finished(self, event: events.Summary) -> None:
        self.close()
        table = Table(show_header=False, box=None, padding=(0, 2))
        table.add_row("top-1 accuracy", Text(f"{event.accuracy:.2%}", style="bold green"))
        table.add_row("top-5 accuracy", f"{event.top5:.2%}")
        table.add_row("training time", f"{duration(event.train_seconds)} (+ {event.compile_seconds:.0f} s to compile)")
        table.add_row("throughput", f"{event.images_per_second:,.0f} images/s, {bottleneck(event.input_bound)}")
        if event.train_flops:
            table.add_row("work", f"{work(event.train_flops)} of convolutions and products, forward and backward")
        table.add_row("run", printable(event.run))
        self.console.print(table)
        self.note(f"next: podium eval {event.run} · podium predict {event.run} IMAGE…")

    def close(self) -> None:
        for bars in (self._live, self._bars):
            if bars is not None:
                bars.stop()
        self._live = self._bars = None
        self._stages = {}


class _Eta(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(task.fields["eta"], style="cyan")
