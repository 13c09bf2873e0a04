"""The input benchmark's result as a table for a person."""

from typing import Any

from rich.console import Console
from rich.table import Table

from podium.bench.input import OURS
from podium.bench.input_peers import PEERS

LABELS = OURS | {name: peer.label for name, peer in PEERS.items()}


def show(result: dict[str, Any], console: Console) -> None:
    counts = list(result["threads"])
    table = Table(title=f"images/s to {result['turns']['image_size']} px: median (least – most)")
    table.add_column("pipeline")
    for count in counts:
        table.add_column(f"{count} thread{'s' if count != '1' else ''}", justify="right")
        table.add_column("Podium is", justify="right")
    for name in result["threads"][counts[0]]:
        cells = []
        for count in counts:
            rate = result["spread"][count][name]
            ratio = result["ratios"][count].get(name)
            cells.append(f"{rate['median']:,.0f} ({rate['least']:,.0f} – {rate['most']:,.0f})")
            cells.append(f"{ratio['podium']['median']:.2f} ×" if ratio else "")
        table.add_row(LABELS[name], *cells)
    console.print(table)
    for count in counts:
        share = result["feed"][count]["share"]["median"]
        console.print(f"{count} threads: batches reach the device at {share:.1%} of the decoder's own rate")
    if "memory" in result:
        marks = ", ".join(f"{mb:,.0f} MB after {int(n):,}" for n, mb in result["memory"]["resident_mb"].items())
        console.print(f"resident memory: {marks} images")
    for name in result["missing"]:
        console.print(f"{LABELS[name]}: not installed, left out; make install EXTRAS=bench brings it")
