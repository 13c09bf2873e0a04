"""Fine-tuning beside training from scratch, on photographs, at equal minutes. A network is trained on half of the
classes (40 of Tiny ImageNet); then 50 images of each of the other 20 classes are learned twice, with the same recipe
and the same number of steps: once from those weights, once from random ones.

    python results/finetune/compare.py TRAIN.parquet VALIDATION.parquet WORK_DIRECTORY results/finetune/DATE.json

Called again, it resumes. Only the learning rate is chosen, for each way of learning from the same three, on a seed that
does not count (`tried`).
"""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from podium.host.machine import describe_machine
from podium.host.versions import versions
from podium.recipe.reading import load_recipe
from podium.train.run import train_recipe
from podium.train.run_directory import read

SMALL = (
    "torus=1x1", "data.image_size=64", "data.eval_share=1.0", "model.name=resnet14", "model.stem=conv7",
    "model.norm_span=64", "batch_global=64", "data.min_area=0.35", "model.last_scale=1.0", "label_smoothing=0.1",
)  # fmt: skip
FIRST = ("epochs=12", "optimizer.learning_rate=0.2", "schedule.warmup_epochs=1", "evaluate_every_epochs=12")
EPOCHS, IMAGES_PER_CLASS, SEEDS, RATES = 12, 50, (1, 2, 3), (0.02, 0.05, 0.2)


def part(source, classes, per_class, out):
    """Some of the classes, counted from 0, with the first `per_class` images of each."""
    table = pq.read_table(source)
    names = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]["label"]["names"]
    seen, rows = dict.fromkeys(classes, 0), []
    for row, label in enumerate(table["label"].to_pylist()):
        if label in seen and seen[label] < per_class:
            seen[label] += 1
            rows.append(row)
    chosen = table.take(rows)
    labels = pa.array([names[label] for label in chosen["label"].to_pylist()])
    chosen = chosen.set_column(1, "label", labels).replace_schema_metadata(None)
    out.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(chosen, out)


def trained(data, run, changes, weights=None):
    """The summary of a run, made now if it is not there."""
    if (run / "summary.json").exists():
        return json.loads((run / "summary.json").read_text())
    recipe = load_recipe("demo", [*SMALL, *changes])
    summary = train_recipe(recipe, data, run, weights=weights)
    print(run.name, f"{summary.accuracy:.1%}", f"{summary.train_seconds:.0f} s", flush=True)
    return json.loads((run / "summary.json").read_text())


def main():
    train, validation, work, out = map(Path, sys.argv[1:])
    halves = {"first": range(0, 40, 2), "second": range(1, 40, 2)}
    for name, classes in halves.items():
        if not (work / name).exists():
            part(train, classes, 500 if name == "first" else IMAGES_PER_CLASS, work / name / "train.parquet")
            part(validation, classes, 50, work / name / "validation.parquet")
    first = trained(work / "first", work / "runs" / "first", FIRST)

    def learn(name, rate, seed, *changes, weights=None):
        settings = (f"epochs={EPOCHS}", f"optimizer.learning_rate={rate}", f"seed={seed}", "schedule.warmup_epochs=1",
                    "evaluate_every_epochs=12")  # fmt: skip
        return trained(work / "second", work / "runs" / name, (*settings, *changes), weights)

    kinds = {
        "scratch": (),
        "finetune": ("optimizer.classifier_rate=2",),
        "classifier": ("model.freeze=all but classifier",),
    }
    tried, found = {}, {}
    for kind, changes in kinds.items():
        weights = None if kind == "scratch" else work / "runs" / "first"

        def run(rate, seed, kind=kind, changes=changes, weights=weights):
            return learn(f"{kind}-{rate}-{seed}", rate, seed, *changes, weights=weights)

        tried[kind] = {rate: run(rate, 0)["accuracy"] for rate in RATES}
        used = max(RATES, key=tried[kind].__getitem__)
        runs = [run(used, seed) for seed in SEEDS]
        found[kind] = {
            "learning_rate": used,
            "settings": list(changes),
            "top1": [done["accuracy"] for done in runs],
            "minutes": [done["train_seconds"] / 60 for done in runs],
        }
    told = {
        "what": "20 classes of Tiny ImageNet, 50 training images each, 1,000 validation images; resnet14 at 64 px",
        "command": "python results/finetune/compare.py TRAIN VALIDATION WORK OUT",
        "commit": subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip(),
        "machine": describe_machine(),
        "versions": versions(),
        "first_run": {"top1": first["accuracy"], "minutes": first["train_seconds"] / 60},
        "recipe": [*SMALL, f"epochs={EPOCHS}"],
        "tried": tried,
        "found": found,
        "weights": read(work / "runs" / f"finetune-{RATES[0]}-0").weights["sha256"],
    }
    out.write_text(json.dumps(told, indent=1) + "\n")


main()
