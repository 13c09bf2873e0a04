"""docs/torus.md: sums between processes on limited links and in simulation, and the sharded update."""

import json
from collections.abc import Iterator
from typing import Any

from docs.figures.sentences import RESULTS, Sentence, newest, power, says

LIMITED = newest("allreduce", "4x4x8-100mbit")
LOSSES = newest("allreduce", "four-processes")["largest_relative_difference_up_to_step"]
UPDATE = newest("update", "4x4")["sharded_to_replicated"]
SOCKETS = newest("allreduce", "sockets-100mbit")["runs"]
NEWEST = max((RESULTS / "torus").glob("*-simulated.jsonl"))
SIMULATED = [json.loads(line) for line in NEWEST.read_text().splitlines()]
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


def simulated() -> Iterator[Sentence]:
    shares = "unequal shares, 32 pieces"
    rows = {"2×8": "woven", "4×8": "woven", "8×16": shares, "16×32": shares, "128×32, long axis open": shares}
    for name, way in rows.items():
        shape = [int(length) for length in name.split(",")[0].split("×")]
        alike = [row for row in SIMULATED if row["shape"] == shape and "bound" in row]
        alike = [row for row in alike if row.get("wraps", [True, True])[0] == ("open" not in name)]
        found = next(row for row in alike if (row["schedule"] == "woven") == (way == "woven"))
        taken, bound = found["seconds"], found["bound"]
        words = f"| {name} | {way} | {{:.3f}} | {{:.3f}} | {{:.2f}} |"
        yield says(words, 1e3 * taken, 1e3 * bound, taken / bound)


def around_holes() -> Iterator[Sentence]:
    for row in SIMULATED:
        if "dead" in row:
            dead = len(row["dead"])
            name = f"| {row['shape'][0]}×{row['shape'][1]} | {dead}{', in two squares' if dead == 8 else ''} |"
            yield says(f"{name} {{:.2f}} |", row["seconds"] / row["whole"])


def when() -> Iterator[Sentence]:
    """The rows of the table that says which algorithm when."""
    small, middle, large, gradients = 65536, 1 << 22, 1 << 24, 102228128
    for size in (small, middle, large):
        row, xla = _measured("4x4", size), _measured("4x4, XLA", size)["seconds"]["xla"]
        words = f"| 4×4, {NAMES[size]} | {{:.3f}} s | {{:.3f}} s | {_choice(row)} | {{:.3f}} s |"
        seconds = (row["seconds"]["sockets"], row["seconds"]["sockets, swing"])
        bound = "{:.4f} s" if size == small else "{:.3f} s"
        yield says(f"{words} {bound} | {{:.0f}} % |", xla, *seconds, row["bound_seconds"], _of_bound(row))
    row = _measured("4x4, 102 MB", gradients)
    words = f"| 4×4, 102 MB | {{:.2f}} s | {{:.3f}} s | {_choice(row)} | – | {{:.3f}} s | {{:.0f}} % |"
    # XLA's sum of 102 MB was measured with the lanes, in the other quiet set.
    xla = next(one for one in LIMITED["results"] if one["bytes"] == gradients)["seconds"]["xla"]
    yield says(words, xla, row["seconds"]["sockets"], row["bound_seconds"], _of_bound(row))
    for name in ("2x8", "8x2", "4x2"):
        row = _measured(name, large)
        words = f"| {name.replace('x', '×')}, 16 MB | – | {{:.3f}} s | {_choice(row)} | – | {{:.3f}} s | {{:.0f}} % |"
        yield says(words, row["seconds"]["sockets"], row["bound_seconds"], _of_bound(row))
    row, whole = _measured("4x4 without host 5", large), _measured("4x4", large)
    words = "| 4×4 without host 5, 16 MB | – | {:.3f} s | woven | – | {:.3f} s | {:.0f} % |"
    yield says(words, row["seconds"]["sockets, around"], row["bound_seconds"], _of_bound(row, "sockets, around"))
    times = row["seconds"]["sockets, around"] / whole["seconds"]["sockets"]
    yield says("around a hole, which take {:.2f} times the whole torus", times)
    oblong = [_measured(name, large)["seconds"]["sockets, torus"] for name in ("2x8", "8x2")]
    yield says("The two colours took {:.3f} s on 2×8 and {:.3f} s on 8×2", *oblong)
    square = [whole["seconds"][way] for way in ("sockets, woven", "sockets, in one piece")]
    yield says("On 4×4 woven routes took {:.3f} s for 16 MB, the two colours in one piece {:.3f} s", *square)


def _choice(row: dict[str, Any]) -> str:
    return {"torus": "two colours", "swing": "Swing", "woven": "woven"}[row["auto"].removeprefix("sockets, ")]


def _measured(run: str, size: int) -> dict[str, Any]:
    return next(row for row in SOCKETS[run]["results"] if row["bytes"] == size)


def _of_bound(row: dict[str, Any], name: str = "sockets") -> float:
    return 100 * row["bound_seconds"] / row["seconds"][name]


def furthest(step: str) -> float:
    return max(by_step[step] for by_step in LOSSES.values())


PAGES = {
    "docs/torus.md": [
        *on_links(),
        *simulated(),
        *around_holes(),
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
