"""docs/accuracy.md, beside the tables that `podium bench accuracy --page` draws."""

from docs.figures.sentences import read, says

BASELINE = read("accuracy/baseline.json")["runs"][0]

PAGES = {
    "docs/accuracy.md": [
        says(
            "The run took {:.1f} minutes of two cores with its evaluations, at {:.0f} images/s",
            *(BASELINE["train_seconds"] / 60, BASELINE["images_per_second"]),
        ),
    ],
}
