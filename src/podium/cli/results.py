"""What `podium eval` and `podium predict` do."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podium.cli.arguments.results import Eval, Predict, which_checkpoint
from podium.cli.start_jax import start_jax
from podium.cli.tables import write_table
from podium.data.prepare.locate import locate, training_directory
from podium.data.prepare_options import FOR_EVALUATION
from podium.host.files import reporting
from podium.host.names import printable
from podium.preview import contact_sheet
from podium.report.terminal import Terminal
from podium.train import run_directory
from podium.train.classify import Classified, classify, find_images
from podium.train.evaluation_record import FOLDER, MISTAKES, record, write_record
from podium.train.judge import Judge
from podium.train.trained_model import Trained, open_run, stored_pixels

_SHOWN = 5  # classes and confusions that a terminal shows


def evaluate(command: Eval) -> dict[str, Any]:
    start_jax()
    terminal = Terminal(quiet=command.json)
    trained = _opened(command)
    data = None
    if command.data and training_directory(command.data).directory == Path(trained.info.data):
        terminal.note(f"the run was trained on {command.data}: taking its validation images")
    elif command.data:
        data = locate(command.data, FOR_EVALUATION, say=terminal.note, progress=terminal.preparing)
    evaluated, judge = trained.examine(data)
    terminal.evaluated(evaluated)
    told = record(evaluated, judge, trained.validation(data))
    for line in _findings(judge, trained.info.classes):
        terminal.note(line)
    out = command.out or command.run / FOLDER
    with reporting(out, "choose a different --out"):
        write_record(out, told)
        _draw_mistakes(out / MISTAKES, trained, judge, data=data)
    terminal.note(f"by class, confusion matrix and the surest mistakes: {out}")
    shown = ("classes", "calibration_error")
    return {"accuracy": evaluated.top1, **asdict(evaluated), "run": str(command.run)} | {
        key: told[key] for key in shown
    }


def _opened(command: Eval | Predict) -> Trained:
    size = command.size if isinstance(command, Eval) else None
    checkpoint = which_checkpoint(command.checkpoint)
    return open_run(command.run, checkpoint=checkpoint, raw_weights=command.raw_weights, size=size)


def _findings(judge: Judge, names: tuple[str, ...]) -> Iterable[str]:
    """What is worth knowing beside the accuracy."""
    by_class = [(a, name) for name, a in zip(names, judge.class_accuracy(), strict=True) if a is not None]
    if len(by_class) > 1:
        worst = ", ".join(f"{name} {accuracy:.1%}" for accuracy, name in sorted(by_class)[:_SHOWN])
        yield f"least accurate classes: {worst}"
    if confused := judge.confused(_SHOWN):
        told = (f"{names[pair.label]} → {names[pair.answer]} {pair.images}×" for pair in confused)
        yield f"most frequent mistakes: {', '.join(told)}"
    confidence = sum(b.confidence * b.images for b in judge.calibration()) / judge.images
    yield f"calibration: {confidence:.1%} sure on average, expected calibration error {judge.calibration_error():.1%}"


def _draw_mistakes(file: Path, trained: Trained, judge: Judge, *, data: Path | None) -> None:
    """The mistakes that the network was surest of, as it saw them."""
    file.unlink(missing_ok=True)
    if not judge.mistakes:
        return
    names = trained.info.classes
    pixels = stored_pixels(trained.validation(data), [m.image for m in judge.mistakes], trained.recipe.data)
    captions = [f"{names[m.label]}\nsaid {names[m.answer]} {m.probability:.0%}" for m in judge.mistakes]
    contact_sheet(pixels, captions).save(file, "WEBP", quality=80)


def predict(command: Predict) -> dict[str, Any]:
    start_jax()
    run_directory.read(command.run)  # a mistyped run is told before a missing image
    files = find_images(command.images)
    trained = _opened(command)
    terminal = Terminal(quiet=True)
    results, writes_file = [], command.csv is not None or command.parquet is not None
    for result in classify(trained, files, top=command.top, progress=terminal.preparing if writes_file else _silent):
        results.append(result)
        if result.failed:
            terminal.note(f"{result.image} is left out: {result.failed}")
        elif not command.json and not writes_file:
            guesses = ", ".join(f"{g.name} {g.probability:.1%}" for g in result.guesses)
            print(printable(f"{result.image}: {guesses}"))
    terminal.close()
    good = [result for result in results if not result.failed]
    for file in (command.csv, command.parquet):
        if file is not None:
            write_table(file, "csv" if file is command.csv else "parquet", good, top=command.top)
            terminal.note(f"{len(good)} images in {file}")
    if len(good) < len(results):
        terminal.note(f"{len(results) - len(good)} of {len(results)} images could not be used")
    return _as_json(results)


def _as_json(results: list[Classified]) -> dict[str, Any]:
    return {
        "images": [
            {
                "image": str(r.image),
                "guesses": [{"class": g.name, "probability": g.probability} for g in r.guesses],
            }
            for r in results
            if not r.failed
        ],
        "failed": [{"image": str(r.image), "reason": r.failed} for r in results if r.failed],
    }


def _silent(stage: str, done: int, total: int) -> None:
    """Where each image has a line of its own, a bar would only tear them apart."""
