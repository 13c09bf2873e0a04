"""Predictions for many image files beside an evaluation of the same images: images per second, start of Python and
compilation included, and how many answers agree.

    python results/predict/many.py tiny-imagenet-40-train.parquet WORK_DIRECTORY > results/predict/DATE.json

The images of the Parquet file are written as files of their own, again and again until there are 50,000. The network is
a small one, so that reading and decoding weigh as much as they can. The evaluation has them prepared already, as images
of validation; the prediction reads the files. Both commands take turns.
"""

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from podium.bench import timing
from podium.recipe.reading import load_recipe
from podium.train.run import train_recipe

IMAGES, ROUNDS = 50_000, 3
CHANGES = (
    "torus=1x1", "data.image_size=64", "data.eval_share=1.0", "batch_global=64", "model.norm_span=64", "epochs=1",
    "schedule.warmup_epochs=0",
)  # fmt: skip


def write_files(table: Path, folder: Path) -> None:
    read = pq.read_table(table)
    names = json.loads(read.schema.metadata[b"huggingface"])["info"]["features"]["label"]["names"]
    images, labels = read["image"].to_pylist(), read["label"].to_pylist()
    for name in names:
        (folder / name).mkdir(parents=True)
    for number in range(IMAGES):
        row = number % len(labels)
        (folder / names[labels[row]] / f"{number:05d}.jpg").write_bytes(images[row]["bytes"])


def timed(*command: str) -> tuple[float, dict]:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "podium", *command, "--json"], check=True, stdout=subprocess.PIPE)
    return time.perf_counter() - began, json.loads(done.stdout.decode().splitlines()[-1])


def main() -> None:
    table, work = map(Path, sys.argv[1:])
    files, prepared, run, answers = (work / name for name in ("files", "prepared", "run", "answers.csv"))
    if not files.exists():
        write_files(table, files)
    if not (run / "summary.json").exists():
        train_recipe(load_recipe("demo", list(CHANGES)), files, run)
    if not prepared.exists():
        timed("prepare", str(files), str(prepared), "--validation", str(files))
    seconds: dict[str, list[float]] = {"predict": [], "eval": []}
    for _ in range(ROUNDS):
        seconds["predict"].append(timed("predict", str(run), str(files), "--csv", str(answers))[0])
        took, evaluated = timed("eval", str(run), "--data", str(prepared))
        seconds["eval"].append(took)
    with answers.open() as file:
        rows = list(csv.DictReader(file))
    right = sum(Path(row["image"]).parent.name == row["class_1"] for row in rows)
    told = {
        "command": "python results/predict/many.py TABLE WORK",
        "images": len(rows),
        "seconds": {name: timing.spread(took) for name, took in seconds.items()},
        "images_per_second": {name: round(IMAGES / sorted(took)[ROUNDS // 2]) for name, took in seconds.items()},
        "right": {"predict": right, "eval": round(evaluated["top1"] * evaluated["images"])},
        "machine": timing.machine("jax", "numpy"),
    }
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
