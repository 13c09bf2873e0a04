"""docs/torus.md: sums between processes, on limited links and on loopback, and the sharded update."""

import json
from collections.abc import Iterator
from typing import Any

from docs.figures.sentences import RESULTS, Sentence, newest, power, says

LIMITED = newest("allreduce", "4x4x8-100mbit")
LOOPBACK = newest("allreduce", "4x4-loopback")["results"]
LOSSES = newest("allreduce", "four-processes")["largest_relative_difference_up_to_step"]
UPDATE = newest("update", "4x4")["sharded_to_replicated"]
SOCKETS = newest("allreduce", "sockets-100mbit")["results"]
SIMULATED = [json.loads(line) for line in (RESULTS / "torus/2026-11-18-simulated.jsonl").read_text().splitlines()]
NAMES = {65536: "64 KB", 1 << 20: "1 MB", 1 << 22: "4 MB", 1 << 24: "16 MB", 102228128: "102 MB"}


def on_links() -> Iterator[Sentence]:
    for row in LIMITED["results"]:
        xla, ring, torus = (row["seconds"][name] for name in ("xla", "ring", "torus"))
        name = NAMES[row["bytes"]] + (", ResNet-50's gradients at once" if row["bytes"] == 102228128 else "")
        digits = 3 if xla < 10 else 2
        time = f"{{:.{digits}f}} s"
        yield says(
            f"| {name} | {time} | {time} | {time} | {{:.1f}}×, {{:.1f}}× | {{:.0f}} % |",
            *(xla, ring, torus, xla / torus, ring / torus, 100 * row["bound_seconds"] / torus),
        )


def on_loopback() -> Iterator[Sentence]:
    for row in LOOPBACK:
        seconds = [row["seconds"][name] for name in ("xla", "ring", "torus")]
        yield says(f"| {NAMES[row['bytes']]} | {{:.3f}} s | {{:.3f}} s | {{:.3f}} s | {{}} |", *seconds, row["auto"])


def simulated() -> Iterator[Sentence]:
    ways = {"woven": "woven", "two colours in unequal shares, 32 pieces": "unequal shares, 32 pieces"}
    for rows, cols, schedule in ((2, 8, "woven"), (4, 8, "woven"), (8, 16, ""), (16, 32, "")):
        alike = (row for row in SIMULATED if row["shape"] == [rows, cols] and "bound" in row)
        found = next(row for row in alike if not schedule or row["schedule"] == schedule)
        taken, bound = found["seconds"], found["bound"]
        words = f"| {rows}×{cols} | {ways[found['schedule']]} | {{:.3f}} | {{:.3f}} | {{:.2f}} |"
        yield says(words, 1e3 * taken, 1e3 * bound, taken / bound)


def when() -> Iterator[Sentence]:
    """The rows of the table that says which algorithm when, from the runs in their order."""
    first, second, dead, oblong = SOCKETS[0]["medians"], *(_by_size(run) for run in SOCKETS[1:4])
    small, middle, large = "65536", "4194304", "16777216"
    yield says(
        "| 4×4, 64 KB | {:.3f} s | – | **{:.3f} s** | – | {:.4f} s |",
        *(first[small]["xla"], first[small]["sockets"], first[small]["bound"]),
    )
    for name, size, xla in (("4 MB", middle, first[middle]["xla"]), ("16 MB", large, None)):
        seconds, bound = second[size]
        start = f"| 4×4, {name} | {{:.3f}} s |" if xla else f"| 4×4, {name} | – |"
        figures = (seconds["sockets, torus"], seconds["sockets"], bound)
        yield says(f"{start} **{{:.3f}} s** | {{:.3f}} s | – | {{:.3f}} s |", *([xla] if xla else []), *figures)
    (woven, bound), (around, left) = oblong[large], dead[large]
    yield says("16 MB, in four pieces | – | – | – | **{:.3f} s** | {:.3f} s |", woven["sockets"], bound)
    yield says("without host 5, 16 MB | – | – | – | {:.3f} s | {:.3f} s |", around["sockets, around"], left)


def _by_size(run: Any) -> dict[str, tuple[dict[str, float], float]]:
    return {str(row["bytes"]): (row["seconds"], row["bound_seconds"]) for row in run["results"]}


def furthest(step: str) -> float:
    return max(by_step[step] for by_step in LOSSES.values())


PAGES = {
    "docs/torus.md": [
        *on_links(),
        *on_loopback(),
        *simulated(),
        *when(),
        says(
            "the losses agree to {} for ten steps and to {} over all 39",
            *(power(furthest("10")), power(furthest("39"))),
        ),
        says(
            "the demo's step ran at {:.2f} (SGD) and {:.2f} (LARS) times the replicated rate, "
            "within a spread of {:.2f} to {:.2f}",
            *(UPDATE["sgd"]["median"], UPDATE["lars"]["median"]),
            *(min(ratio["least"] for ratio in UPDATE.values()), max(ratio["most"] for ratio in UPDATE.values())),
        ),
    ]
}
