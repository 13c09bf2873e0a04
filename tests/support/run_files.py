"""The files of a run directory, as a short training of two classes leaves them."""

import io
import json

from PIL import Image

from podium.recipe.reading import load_recipe, to_dict

CLASSES = ["a <b> cat", "dog"]


def write_run(directory, *, evaluated=False, changes=None):
    recipe = {**to_dict(load_recipe("demo")), **(changes or {})}
    recipe["optimizer"] = {**recipe["optimizer"], "learning_rate": 0.1, **(changes or {}).get("optimizer", {})}
    directory.mkdir()
    about = {
        "recipe": recipe, "data": "/data/prepared", "data_hash": "abc", "classes": CLASSES, "weights": None,
        "changes": [{"after_step": 10, "changed": ["torus 1x1 → 1x2"]}],
    }  # fmt: skip
    (directory / "run.json").write_text(json.dumps(about))
    lines = []
    for step in (5, 10, 15, 20):
        train = {"loss": 2.0 - step / 20, "top1": step / 40, "learning_rate": 0.1, "gradient_norm": 1.0}
        rates = {"images_per_second": 100.0, "input_bound": 0.2, "eta_seconds": 1.0}
        lines.append({"event": "train", "step": step, "epoch": step / 10, **train, **rates})
    for step, top1 in ((10, 0.3), (20, 0.6)):
        lines.append({"event": "evaluation", "step": step, "epoch": step / 10, "images": 10, "top1": top1, "top5": 1.0,
                      "loss": 1.0, "seconds": 0.1})  # fmt: skip
    lines.append({"event": "summary", "train_seconds": 65.0, "images_per_second": 99.0, "accuracy": 0.6})
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    machine = {"host": "here", "cores": 2, "cpu": "a CPU"}
    starts = [
        {"time": 1e9 + step, "first_step": step, "torus": "1x1", "platform": "simulated", "parameters": 10_000,
         "machine": machine, "versions": {"podium": "0.1.0", "jax": "0.10.2"}}
        for step in (0, 10)
    ]  # fmt: skip
    (directory / "starts.jsonl").write_text("".join(json.dumps(start) + "\n" for start in starts))
    if evaluated:
        _write_evaluation(directory / "evaluation")
    return directory


def _write_evaluation(folder):
    folder.mkdir()
    classes = [{"name": name, "images": 5, "accuracy": 0.6} for name in ("cat", "dog")]
    told = {
        "step": 20, "images": 10, "data": "/data/prepared", "top1": 0.6, "top5": 1.0, "loss": 1.0,
        "calibration_error": 0.1, "calibration": [{"images": 10, "confidence": 0.7, "accuracy": 0.6}],
        "classes": classes, "confusion": [[3, 2], [2, 3]], "mistakes": [],
    }  # fmt: skip
    (folder / "evaluation.json").write_text(json.dumps(told))
    picture = io.BytesIO()
    Image.new("RGB", (20, 20), "red").save(picture, "WEBP")
    (folder / "mistakes.webp").write_bytes(picture.getvalue())
