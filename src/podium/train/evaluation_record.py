"""An evaluation as files, for people and for `podium report`: evaluation.json with everything, classes.csv and
confusion.csv for a spreadsheet. The pictures of mistakes are drawn elsewhere (`preview`)."""

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podium.data.dataset.shards import ImageSet
from podium.host.files import replacing, write_atomic
from podium.report.events import Evaluated
from podium.train.judge import Judge

FOLDER, RECORD, MISTAKES = "evaluation", "evaluation.json", "mistakes.webp"


def record(evaluated: Evaluated, judge: Judge, images: ImageSet) -> dict[str, Any]:
    """The content of evaluation.json."""
    names = images.classes
    accuracies = zip(names, judge.class_images.tolist(), judge.class_accuracy(), strict=True)
    return {
        **asdict(evaluated),
        "data": str(images.directory),
        "calibration_error": judge.calibration_error(),
        "calibration": [asdict(b) for b in judge.calibration()],
        "classes": [{"name": name, "images": n, "accuracy": accuracy} for name, n, accuracy in accuracies],
        "confusion": judge.confusion.tolist(),
        "mistakes": [
            {
                "image": images.name(m.image),
                "class": names[m.label],
                "answer": names[m.answer],
                "probability": m.probability,
            }
            for m in judge.mistakes
        ],
    }


def write_record(folder: Path, told: dict[str, Any]) -> None:
    """Writes the files into `folder`, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / RECORD, json.dumps(told))
    names = [entry["name"] for entry in told["classes"]]
    _write_csv(folder / "classes.csv", ["class", "images", "accuracy"], [list(c.values()) for c in told["classes"]])
    rows = [[name, *counts] for name, counts in zip(names, told["confusion"], strict=True)]
    _write_csv(folder / "confusion.csv", ["class \\ answer", *names], rows)


def _write_csv(path: Path, header: list[str], rows: list[list[Any]]) -> None:
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
