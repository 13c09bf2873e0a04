"""docs/accuracy.md, beside the tables that `podium bench accuracy --page` draws."""

from docs.figures.sentences import read, says

BASELINE = read("accuracy/baseline.json")["runs"][0]
TRIED = read("accuracy/tried.json")
ONE_RATE, OF_BIASES = TRIED["muon"]["runs"]
LOSSES = [dict(run["losses"]) for run in (ONE_RATE, OF_BIASES)]

ALONE = TRIED["stages"]["whole_run_residual"]["images_per_second"]["of_20_steps"]

PAGES = {
    "docs/accuracy.md": [
        says(
            "The run took {:.1f} minutes of two cores with its evaluations, at {:.0f} images/s",
            *(BASELINE["train_seconds"] / 60, BASELINE["images_per_second"]),
        ),
        says("`cifar10` reached {:.2f} % from one seed", 100 * read("accuracy/cifar10.json")["runs"][0]["accuracy"]),
        says("its network trained at {:.0f} to {:.0f} images/s", min(ALONE), max(ALONE)),
        says(
            "with residual second convolutions and a random start {:.2f} %; with the same, and first convolutions that "
            "pass their inputs on, {:.2f} %; without residuals, where all of them do, {:.2f} %. The first of these "
            "reached {:.2f} % as the whole recipe",
            *(run["top1"] for run in TRIED["stages"]["runs"]),
            TRIED["stages"]["whole_run_residual"]["top1"],
        ),
        says(
            "with one rate for all weights {:.1f} % and after 80 of 140 steps a loss of {:.3f}",
            *(ONE_RATE["top1"], LOSSES[0][80]),
        ),
        says(
            "64 times the rate for the biases {:.3f} there, and {:.3f} instead of {:.3f} after 40 steps",
            *(LOSSES[1][80], LOSSES[1][40], LOSSES[0][40]),
        ),
    ],
}
