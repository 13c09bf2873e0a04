"""What `podium plan` shows: the progress of a compilation, a plan as a page of text, a sweep and a check as tables.
Every figure stands beside its origin.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from podium.plan.cuda import GpuCompiled
from podium.plan.estimate import Origin
from podium.plan.gpu_show import add_compiled_rows
from podium.plan.libtpu import Stage
from podium.plan.plan import Plan
from podium.plan.published import Check, summary
from podium.report.terminal import duration

_COLOURS = {Origin.MEASURED: "green", Origin.COMPILED: "cyan", Origin.MODELLED: "yellow", Origin.ASSUMED: "magenta"}


def marked(origin: Origin) -> str:
    return f"[{_COLOURS[origin]}]{origin}[/]"


@contextmanager
def progress(console: Console, what: str) -> Iterator[Stage]:
    """A live line with the stage and the time since the start; in a log file, one line per stage."""
    if not console.is_terminal:
        yield lambda text: console.print(f"{what}: {text}", style="dim", highlight=False, soft_wrap=True)
        return
    columns = (SpinnerColumn(), TextColumn("[bold]{task.fields[what]}[/] {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, what=what)
        yield lambda text: bar.update(task, description=text)


def show(plan: Plan, simulated: dict[str, dict[str, float]], console: Console) -> None:
    recipe, pod, e = plan.recipe, plan.pod, plan.estimate
    console.print(
        f"[bold]{recipe.name}[/] on [bold]{pod}[/]: {pod.chips:,} chips, {pod.cores:,} cores, {pod.hosts:,} hosts; "
        f"batch {recipe.batch_global:,} = {recipe.batch_global // pod.cores} per core, "
        f"batch norm over {recipe.model.norm_span}",
        soft_wrap=True,
        highlight=False,
    )
    table = Table(box=None, show_header=False, padding=(0, 2))
    fits = "[green]fits[/]" if plan.fits else "[bold red]does not fit[/]"
    share = plan.memory.bytes / plan.memory.limit_bytes
    table.add_row(
        "memory per core",
        f"{plan.memory.bytes / 2**30:.2f} of {plan.memory.limit_bytes / 2**30:.0f} GiB ({share:.0%}), {fits}",
        marked(plan.memory.origin),
    )
    for part in e.parts:
        table.add_row(
            part.name,
            f"{part.seconds * 1e3:.2f} ms ({part.seconds / e.device_seconds:.0%}): {part.how}",
            marked(part.origin),
        )
    if plan.cpu_images_per_second:
        table.add_row(
            "input",
            f"{plan.cpu_cores_per_host:.0f} CPU cores per host needed of {pod.chip.host_cores} there "
            f"({plan.cpu_images_per_second:,.0f} images/s per core of this machine)",
            marked(Origin.MEASURED),
        )
    table.add_row("step", f"[bold]{e.step_seconds * 1e3:.2f} ms[/], limited by {e.limit}", marked(Origin.MODELLED))
    table.add_row("throughput", f"[bold]{e.images_per_second:,.0f} images/s[/]", marked(Origin.MODELLED))
    table.add_row(
        "time to train",
        f"[bold]{duration(e.train_seconds)}[/]: warm-up {e.warmup_seconds:.1f} s, {recipe.epochs:g} epochs "
        f"{e.train_seconds - e.warmup_seconds - e.evaluation_seconds:.1f} s, evaluations {e.evaluation_seconds:.1f} s",
        marked(Origin.MODELLED),
    )
    table.add_row("gradient sum", plan.gradients.words, marked(plan.gradients.origin))
    if isinstance(plan.compiled, GpuCompiled):
        add_compiled_rows(table, plan.compiled, marked(Origin.COMPILED))
    console.print(table)
    _show_schedules(simulated, console)
    if plan.compiled:
        when = "compiled earlier" if plan.compiled.earlier else f"compiled in {plan.compiled.compile_seconds:.0f} s"
        versions = plan.compiled.versions
        compiler = f"libtpu {versions['libtpu']}" if "libtpu" in versions else versions["plugin"]
        console.print(f"{when} with {compiler}", style="dim", highlight=False)
    for note in plan.notes:
        console.print(f"note: {note}", style="dim", highlight=False, markup=False, soft_wrap=True)


def _show_schedules(simulated: dict[str, dict[str, float]], console: Console) -> None:
    if not simulated:
        return
    table = Table("Podium's own schedules, simulated link by link", "this pod", "closed form, all axes rings")
    for name, seconds in simulated.items():
        table.add_row(
            name,
            f"{seconds['simulated_seconds'] * 1e3:.2f} ms",
            f"{seconds['closed_form_seconds'] * 1e3:.2f} ms",
        )
    console.print(table)


def show_sweep(rows: list[dict[str, Any]], console: Console) -> None:
    table = _table("pod", "chips", "batch", "images/s", "eff.", "comm.", "time", "GiB/core", "compute is")
    for row in rows:
        table.add_row(
            row["topology"],
            f"{row['chips']:,}",
            f"{row['batch_global']:,}",
            f"{row['images_per_second']:,.0f}",
            f"{row['efficiency']:.0%}",
            f"{row['communication_share']:.1%}",
            duration(row["train_minutes"] * 60),
            f"{row['memory_bytes_per_core'] / 2**30:.1f}" if row["fits"] else "[red]too much[/]",
            marked(Origin(row["compute_origin"])),
        )
    _show_whole(table, console)
    console.print(
        "eff.: images/s per chip against the first row; comm.: gradient sum and batch-norm exchange, of the step; "
        "time: to train.",
        style="dim",
        soft_wrap=True,
    )
    if starved := [f"{row['topology']} at {row['batch_global']:,}" for row in rows if row["limit"] == "input"]:
        console.print(f"limited by input: {', '.join(starved)}", style="dim", highlight=False, soft_wrap=True)


def show_check(found: Check, console: Console) -> None:
    table = _table("point", "pod", "batch", "published", "planned", "error", "for", "source")
    for result in found.points:
        point = result.point
        table.add_row(
            point.name,
            point.topology,
            f"{point.batch_global:,}",
            f"{point.images_per_second / 1e3:,.0f} k",
            f"{result.predicted / 1e3:,.0f} k",
            f"{result.error:+.1%}",
            "fitting" if result.fitted else "testing",
            point.source,
        )
    _show_whole(table, console)
    versions = sorted({result.compiled_with for result in found.points})
    console.print(f"images/s, evaluations included; compiled with {', '.join(versions)}", style="dim", highlight=False)
    for name, of in summary(found.points).items():
        console.print(
            f"{name} ({of['points']} points): median error {of['median_error']:.1%}, worst {of['worst_error']:.1%}",
            highlight=False,
        )
    if found.not_compiled:
        console.print(f"not compiled yet: {', '.join(found.not_compiled)}; --fresh compiles them", highlight=False)
    if (beside := found.beside) is None:
        return
    console.print(
        f"the paper's pod by the same constants: Podium {beside.podium_images_per_second:,.0f} images/s, the peer "
        f"{beside.peer_images_per_second:,.0f} ({beside.gain:+.1%}); evaluations left out",
        highlight=False,
    )


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 1))
    for name in names:
        left = name in ("pod", "point", "source")
        table.add_column(name, no_wrap=name != "source", justify="left" if left else "right")
    return table


def _show_whole(table: Table, console: Console) -> None:
    """A figure cut short is none. Where the console is narrow (a pipe has 80 columns), the source wraps, and then lines
    run over the edge."""
    for column in table.columns:
        if column.no_wrap:
            cells = (column.header, *column.cells)
            column.min_width = max(Text.from_markup(str(cell)).cell_len for cell in cells)
    console.print(table, crop=False)
