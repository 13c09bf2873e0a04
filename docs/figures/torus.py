"""docs/torus.md: sums between processes, on limited links and on loopback, and the sharded update."""

from collections.abc import Iterator

from docs.figures.sentences import Sentence, newest, power, says

LIMITED = newest("allreduce", "4x4x8-100mbit")
LOOPBACK = newest("allreduce", "4x4-loopback")["results"]
LOSSES = newest("allreduce", "four-processes")["largest_relative_difference_up_to_step"]
UPDATE = newest("update", "4x4")["sharded_to_replicated"]
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


def furthest(step: str) -> float:
    return max(by_step[step] for by_step in LOSSES.values())


PAGES = {
    "docs/torus.md": [
        *on_links(),
        *on_loopback(),
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
