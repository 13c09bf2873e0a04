"""What a plan shows of a program compiled for GPUs, and of the check against published runs."""

from collections import Counter

from rich.table import Table

from podium.plan.cuda import GpuCompiled
from podium.plan.gpu_hlo import GpuCollective


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
    for words, count in Counter(map(_in_words, program.collectives)).items():
        table.add_row("collective", f"{count} × {words}", mark)


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
