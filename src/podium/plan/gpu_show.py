"""What a plan shows of a program compiled for GPUs, and of the check against published runs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from podium.plan.cuda import GpuCompiled
from podium.plan.gpu_estimate import CONSTANTS
from podium.plan.gpu_hlo import GpuCollective
from podium.plan.gpu_published import FITTED, summary


def add_compiled_rows(table: Table, facts: GpuCompiled, mark: str) -> None:
    """Kernels, and collectives of a kind together."""
    program = facts.program
    layout = "NHWC" if program.channels_last else "not all NHWC"
    table.add_row(
        "kernels",
        f"{program.whole.kernels:,}, {program.update.kernels} of them after the last convolution; "
        f"{program.convolutions} cuDNN convolutions, {layout}",
        mark,
    )
    launches = program.launches
    by_host_ms = (launches.graphs + launches.alone + len(program.collectives)) * CONSTANTS.eager_launch_us / 1e3
    table.add_row(
        "launches",
        f"{launches.graphs} CUDA graphs with {launches.in_graphs} kernels, and {launches.alone} kernels alone; "
        f"the host needs {by_host_ms:.1f} ms a step at {CONSTANTS.eager_launch_us:g} µs each",
        mark,
    )
    for words, count in Counter(map(_in_words, program.collectives)).items():
        table.add_row("collective", f"{count} × {words}", mark)


def show_check(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """Published runs on GPUs beside what is planned of them."""
    if not rows:
        return
    table = Table(box=None, padding=(0, 1, 0, 0))  # which fits 80 columns
    for name in ("cluster", "batch", "published", "planned", "error", "hidden", "for", "source"):
        table.add_column(name, no_wrap=True, justify="left" if name in ("cluster", "source") else "right")
    for row in rows:
        table.add_row(
            row["topology"],
            f"{row['batch_global']:,}",
            f"{row['images_per_second'] / 1e3:,.0f} k",
            f"{row['predicted'] / 1e3:,.0f} k",
            f"{row['error']:+.1%}",
            f"{row['sums_hidden']:.0%}",
            "fitting" if row["fitted"] else "testing",
            row["source"],
        )
    console.print(table, crop=False)
    for name, of in summary(rows).items():
        console.print(
            f"GPUs, {name} ({of['points']} points): median error {of['median_error']:.1%}, "
            f"worst {of['worst_error']:.1%}",
            highlight=False,
        )
    fitted = f"{FITTED.replace('_', ' ')} {getattr(CONSTANTS, FITTED):g}"
    assumed = ", ".join(
        f"{name.replace('_', ' ')} {value:g}" for name, value in vars(CONSTANTS).items() if name != FITTED
    )
    console.print(
        f"planned and hidden are modelled, on compiled programs; fitted: {fitted}; assumed: {assumed}",
        highlight=False,
        soft_wrap=True,
    )


def _in_words(collective: GpuCollective) -> str:
    size = collective.bytes
    amount = f"{size / 1e6:.1f} MB" if size >= 1e5 else "below 0.1 MB"
    within = "inside a host" if collective.hosts == 1 else f"over {collective.hosts} hosts"
    under = collective.under
    if collective.synchronous:
        how = "synchronous"
    elif size < 1e5:
        how = "asynchronous"
    else:
        how = f"asynchronous, {under.kernels} kernels under it"
    return f"{collective.kind} of {amount}, groups of {collective.gpus} {within}, {how}"
