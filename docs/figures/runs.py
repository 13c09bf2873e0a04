"""Runs: kills and checkpoints (docs/resume.md), fine-tuning and prediction (photos.md), lost processes (hangs.md),
an empty system (install.md)."""

from collections.abc import Iterator
from statistics import mean

from docs.figures.sentences import Sentence, newest, says

KILLS, COST, RESTART = (
    newest("resume", "verify-resume"),
    newest("resume", "checkpoint-cost"),
    newest("resume", "restart"),
)
FLIPS = [told for told in newest("damage", "flips").values() if isinstance(told, dict)]
FOUND = newest("finetune")["found"]
EMPTY = newest("install")["debian-12"]
PREDICT = newest("predict")["seconds"]
LOAD = newest("processes", "load-4096")
LOST = LOAD["one_lost"]
IMPORTS = newest("parts", "imports")["parts"]
FOURTEEN_M = newest("prepare", "large-14m")["sizes"][0]
STARTS = {
    "scratch": "random weights",
    "finetune": "those weights, all layers learn",
    "classifier": "those weights, only the classifier learns",
}


def starting_from() -> Iterator[Sentence]:
    for name, label in STARTS.items():
        top1 = [100 * accuracy for accuracy in FOUND[name]["top1"]]
        minutes = mean(FOUND[name]["minutes"])
        yield says(f"| {label} | {{:.1f}} ({{:.1f}}–{{:.1f}}) | {{:.1f}} |", mean(top1), min(top1), max(top1), minutes)


def imports() -> Iterator[Sentence]:
    for part, cost in IMPORTS.items():
        name = (
            part
            if part[0].isupper()
            else {"decode": "data.decode", "machines": "plan.machines", "planner": "plan.plan"}.get(part, part)
        )
        words = f"| `podium.{name}` | {{:.2f}} s, {{:.0f}} MB |"
        yield says(words, cost["cpu_seconds"], cost["memory_mb"])


PAGES = {
    "docs/parts.md": [*imports()],
    "docs/resume.md": [
        says(
            "| {} SIGKILLs, {} of them inside a checkpoint's write | identical weights, at most {} steps lost "
            "each time ({} allowed) | `podium verify-resume --kills 25`, under {:.0f} minutes",
            *(KILLS["kills"], KILLS["kills_inside_a_write"], KILLS["lost_steps_max"], KILLS["max_lost_steps"]),
            -(-KILLS["wall_seconds"] // 60),
        ),
        says(
            "| one byte changed, {:,} times, in any file of a prepared directory or a run | {:,} named by "
            "`podium verify`, {} without effect, none silently wrong |",
            *(sum(told[what] for told in FLIPS) for what in ("flips", "named", "harmless")),
        ),
        says(
            "| checkpoints of the demo | {:.2f} s each, {} in a run of {:.0f} s: {:.1f} ± {:.1f} % |",
            *(COST["seconds_per_checkpoint_mean"], COST["demo_checkpoints"], COST["demo_train_seconds_without"]),
            *(100 * COST["share_of_demo"], 100 * COST["share_of_demo_standard_error"]),
        ),
        says(
            "| {:.1f} to {:.1f} s in five restarts | programs in the cache; {:.0f} s at the first start",
            *(min(RESTART["restart_seconds"]), max(RESTART["restart_seconds"]), RESTART["start_seconds"]),
        ),
    ],
    "docs/install.md": [
        says(
            "`pip install` took {:.0f} s and the first trained model, the whole demo, another {:.0f} s; {} tests",
            *(EMPTY["install_seconds"], EMPTY["train_seconds"], int(EMPTY["tests"].split()[0])),
        ),
    ],
    "docs/photos.md": [
        *starting_from(),
        says(
            "50,000 photographs of 64 px took {:.0f} s, beside {:.0f} s for `eval`",
            *(PREDICT["predict"]["median"], PREDICT["eval"]["median"]),
        ),
    ],
    "docs/hangs.md": [
        says("| 4,096 | 5 s | 10 s | {:.2f} MB/s | measured |", LOAD["watching_megabytes_per_second"]),
        says(
            "posted {:.1f} s after the loss (10 s after the last sign) and heard by all {:.1f} s later. "
            "A start takes {:.0f} MB in all",
            *(LOST["posted_seconds_after_loss"], LOST["read_by_all_seconds_after_posting"]),
            LOAD["start_up"]["megabytes"],
        ),
    ],
    "docs/input.md": [
        says(
            "with at most {:.1f} GB of memory; the last shards took no longer than the first. The prepared directory "
            "opens in {:.1f} s once its index is in memory, and in {:.0f} s from a cold disk",
            *(FOURTEEN_M["peak_mb"] / 1000, mean(FOURTEEN_M["open_seconds_again"]), FOURTEEN_M["open_seconds"]),
        ),
    ],
}
