"""One page per run, or one for several that compares them: curves, evaluation, recipe, data, machine, what was resumed
when. Made from the files of the run directories alone, so a run that is under way has one too.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.errors import UserError
from podium.report.history import History, read_history
from podium.report.page import Chart, Line, Page
from podium.report.starts import read_starts
from podium.report.terminal import bottleneck, duration, work

_CONFUSION_MOST = 40  # classes; above it a table would be unreadable, and the most frequent mistakes are listed
_LISTED = 30


@dataclass(frozen=True)
class Run:
    """What the files of a run directory say."""

    name: str
    about: dict[str, Any]
    """run.json"""
    history: History
    starts: Sequence[dict[str, Any]]
    evaluation: dict[str, Any] | None
    """evaluation/evaluation.json, which `podium eval` writes."""
    sheet: bytes | None
    """The picture of the surest mistakes, as WebP."""

    @property
    def recipe(self) -> dict[str, Any]:
        return self.about["recipe"]

    @property
    def best(self) -> dict[str, Any] | None:
        return max(self.history.evaluations, key=lambda line: line["top1"], default=None)


def read_run(directory: Path) -> Run:
    try:
        about = json.loads((directory / "run.json").read_text())
        about["recipe"]["model"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{directory} holds no run (no readable run.json); give the --run directory of a training"
        ) from None
    folder = directory / "evaluation"
    record, sheet = folder / "evaluation.json", folder / "mistakes.webp"
    return Run(
        name=directory.name or str(directory.absolute().name),
        about=about,
        history=read_history(directory),
        starts=read_starts(directory),
        evaluation=json.loads(record.read_text()) if record.exists() else None,
        sheet=sheet.read_bytes() if sheet.exists() else None,
    )


def run_page(directories: Sequence[Path]) -> str:
    """The HTML of a page for these runs."""
    runs = [read_run(directory) for directory in directories]
    if len(runs) == 1:
        page = Page(f"{runs[0].name}: {runs[0].recipe['model']['name']}, recipe {runs[0].recipe['name']}")
        _details(page, runs[0])
        return page.html()
    page = Page(f"{len(runs)} runs: " + ", ".join(run.name for run in runs))
    page.heading("What differs in their recipes")
    differences = _differences(runs)
    if differences:
        columns = range(len(runs) + 1)
        page.table(["", *(run.name for run in runs)], differences, columns)
    else:
        page.text("Nothing: the recipes are the same.")
    page.heading("Results")
    _results(page, runs)
    page.heading("Curves")
    page.charts(_curves(runs))
    for run in runs:
        page.folded(f"{run.name}, in full")
        _details(page, run)
        page.end_folded()
    return page.html()


def _details(page: Page, run: Run) -> None:
    page.cards(_cards(run))
    page.charts(_curves([run]))
    if run.evaluation:
        _evaluation(page, run, run.evaluation)
    else:
        page.heading("Evaluation in detail")
        page.text("podium eval RUN adds accuracy by class, the confusion matrix, calibration and the surest mistakes.")
    page.heading("Recipe")
    page.table(["key", "value"], list(flat(run.recipe).items()), (0, 1))
    _data(page, run)
    _machine(page, run)


def _cards(run: Run) -> list[tuple[str, str]]:
    history, cards = run.history, []
    if history.evaluations:
        last, best = history.evaluations[-1], run.best
        cards.append((f"{last['top1']:.2%}", f"top-1 accuracy, epoch {last['epoch']:.3g}"))
        cards.append((f"{last['top5']:.2%}", "top-5 accuracy"))
        if best is not None and best["top1"] > last["top1"]:
            cards.append((f"{best['top1']:.2%}", f"best top-1, epoch {best['epoch']:.3g}"))
    if history.summary:
        cards.append((duration(history.summary["train_seconds"]), "training and evaluation, m:ss"))
        if flops := history.summary.get("train_flops"):
            cards.append((work(flops), "convolutions and products"))
    if history.train:
        rates = sorted(line["images_per_second"] for line in history.train)
        waits = sum(line["input_bound"] for line in history.train) / len(history.train)
        cards.append((f"{rates[len(rates) // 2]:,.0f}", f"images/s, {bottleneck(waits)}"))
        cards.append((f"{history.train[-1]['step']:,}", "steps" if history.summary else "steps so far"))
    if run.starts:
        cards.append((f"{run.starts[-1]['parameters'] / 1e6:.2f} M", "parameters"))
    return cards


def _curves(runs: Sequence[Run]) -> list[Chart]:
    several = len(runs) > 1

    def lines(kind: str, key: str, label: str, *, dashed: bool = False) -> list[Line]:
        found = []
        for run in runs:
            points = [line for line in getattr(run.history, kind) if key in line]
            name = f"{run.name}, {label}" if several else label
            found.append(Line(name, [p["epoch"] for p in points], [p[key] for p in points], dashed))
        return found

    smoothing = any(run.recipe.get("label_smoothing") for run in runs)
    note = (
        "Training's loss is of smoothed labels, evaluation's is not: only each with itself compares."
        if smoothing
        else ""
    )
    accuracy = [*lines("train", "top1", "training", dashed=True), *lines("evaluations", "top1", "top-1")]
    if any("raw_top1" in line for run in runs for line in run.history.evaluations):
        accuracy += lines("evaluations", "raw_top1", "top-1, not averaged")
    loss = [*lines("train", "loss", "training", dashed=True), *lines("evaluations", "loss", "evaluation")]
    waiting = lines("train", "input_bound", "share of the time")
    idle = "The share of the time in which the devices stood idle because no batch was ready."
    rate = lines("train", "images_per_second", "images/s")
    return [
        Chart("Accuracy", "epoch", "", accuracy, "percent"),
        Chart("Loss", "epoch", "", loss, note=note),
        Chart("Learning rate", "epoch", "", lines("train", "learning_rate", "learning rate")),
        Chart("Throughput", "epoch", "images/s", rate, note="Of training, without evaluations."),
        Chart("Waiting for input", "epoch", "", waiting, "percent", range=(0, 1), note=idle),
        Chart("Gradient norm", "epoch", "", lines("train", "gradient_norm", "gradient norm"), log_y=True),
    ]


def _evaluation(page: Page, run: Run, told: dict[str, Any]) -> None:
    page.heading(f"Evaluation at step {told['step']:,}")
    page.text(
        f"{told['images']:,} images of {told['data']}. Top-1 {told['top1']:.2%}, top-5 {told['top5']:.2%}, loss "
        f"{told['loss']:.3f}, expected calibration error {told['calibration_error']:.1%}."
    )
    names, confusion = [entry["name"] for entry in told["classes"]], told["confusion"]
    if len(names) <= _CONFUSION_MOST:
        page.text("Rows are classes, columns what they were taken for.", quiet=True)
        page.confusion(names, confusion)
    else:
        pairs = [(n, a, b) for a, row in enumerate(confusion) for b, n in enumerate(row) if a != b and n]
        rows = [(names[a], names[b], n) for n, a, b in sorted(pairs, reverse=True)[:_LISTED]]
        page.table(["class", "was taken for", "images"], rows, (0, 1))
    ranked = sorted((c for c in told["classes"] if c["images"]), key=lambda c: c["accuracy"])
    page.folded("Accuracy by class, the lowest first")
    page.table(["class", "accuracy", "images"], [(c["name"], f"{c['accuracy']:.1%}", c["images"]) for c in ranked])
    page.end_folded()
    bins = told["calibration"]
    points = [b["confidence"] for b in bins], [b["accuracy"] for b in bins]
    page.charts(
        [
            Chart(
                "Calibration", "confidence", "accuracy",
                [Line("answers", *points), Line("as sure as right", [0, 1], [0, 1], dashed=True)], "percent",
                note="Below the dashed line the network is surer than it is right.", range=(0, 1),
            )
        ]
    )  # fmt: skip
    if run.sheet:
        page.heading("The mistakes that it was surest of")
        page.picture(run.sheet, "webp", "Images that were classified wrong, each with its class and the answer")


def _data(page: Page, run: Run) -> None:
    about, data = run.about, run.recipe["data"]
    page.heading("Data")
    classes = ", ".join(about["classes"][:12]) + (", …" if len(about["classes"]) > 12 else "")
    rows = [
        ("directory", about["data"]),
        ("images", f"{data['train_images']:,} to train on, {data['validation_images']:,} to evaluate on"),
        ("classes", f"{len(about['classes'])}: {classes}"),
        ("content hash", about["data_hash"]),
    ]
    if about.get("weights"):
        rows.append(("started from", about["weights"]["source"]))
    page.table(["", ""], rows, (0, 1))


def _machine(page: Page, run: Run) -> None:
    page.heading("Machine, starts and changes")
    rows = []
    for start in run.starts:
        machine = start["machine"]
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(start["time"]))
        what = f"resumed after step {start['first_step']:,}" if start["first_step"] else "started"
        chips = f"{start['torus']} {start['platform']}"
        rows.append((when, what, chips, f"{machine['host']}: {machine['cores']} cores, {machine['cpu']}",
                     f"podium {start['versions']['podium']}, jax {start['versions']['jax']}"))  # fmt: skip
    if rows:
        page.table(["when", "what", "chips", "machine", "versions"], rows, range(5))
    for change in run.about.get("changes", ()):
        page.text(f"After step {change['after_step']}: {', '.join(change['changed']) or 'went back'}")
    if not rows:
        page.text("The run was made by a version that did not note its starts.", quiet=True)


def _results(page: Page, runs: Sequence[Run]) -> None:
    rows = []
    for run in runs:
        last = run.history.evaluations[-1] if run.history.evaluations else None
        best, summary = run.best, run.history.summary
        rows.append((
            run.name,
            f"{last['top1']:.2%}" if last else "–",
            f"{best['top1']:.2%}" if best else "–",
            f"{last['loss']:.3f}" if last else "–",
            duration(summary["train_seconds"]) if summary else "under way",
            f"{summary['images_per_second']:,.0f}" if summary else "–",
        ))  # fmt: skip
    page.table(["run", "top-1", "best top-1", "evaluation loss", "time", "images/s"], rows)


def _differences(runs: Sequence[Run]) -> list[list[str]]:
    """A row for each key of the recipes, and of what the runs started from, that is not the same in all."""
    tables = [
        {**flat(run.recipe), "data": run.about["data"], "weights": (run.about.get("weights") or {}).get("source", "–")}
        for run in runs
    ]
    keys = dict.fromkeys(key for table in tables for key in table if key != "name")
    rows = [[key, *(str(table.get(key, "–")) for table in tables)] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def flat(table: dict[str, Any], where: str = "") -> dict[str, Any]:
    """A recipe's values by keys with dots: "optimizer.momentum"."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{where}{key}.") if isinstance(value, dict) else {f"{where}{key}": value}
    return found
