"""What `podium eval` and `podium predict` do."""

from dataclasses import asdict
from typing import Any

from podium.cli.arguments.results import Eval, Predict
from podium.cli.start_jax import start_jax
from podium.data.prepare.locate import locate
from podium.data.prepare_options import FOR_EVALUATION
from podium.host.names import printable
from podium.report.terminal import Terminal
from podium.train.trained_model import open_run

_GUESSES = 5


def evaluate(command: Eval) -> dict[str, Any]:
    start_jax()
    terminal = Terminal(quiet=command.json)
    data = None
    if command.data:
        data = locate(command.data, FOR_EVALUATION, say=terminal.note, progress=terminal.preparing)
    evaluation = open_run(command.run).evaluate(data)
    terminal.evaluated(evaluation)
    return {"accuracy": evaluation.top1, **asdict(evaluation), "run": str(command.run)}


def predict(command: Predict) -> list[dict[str, Any]]:
    start_jax()
    trained = open_run(command.run)
    results = []
    for file, probabilities in zip(command.images, trained.predict(command.images), strict=True):
        best = probabilities.argsort()[::-1][:_GUESSES]
        guesses = [{"class": trained.info.classes[i], "probability": float(probabilities[i])} for i in best]
        results.append({"image": str(file), "guesses": guesses})
        if not command.json:
            best_first = ", ".join(f"{g['class']} {g['probability']:.1%}" for g in guesses)
            print(printable(f"{file}: {best_first}"))
    return results
