"""Does accuracy hold as the batch-norm span, the batch, the chips and the precision change? Every row of the tables in
docs/accuracy.md has a name here, and is a shipped recipe with a few changes. A run is the command `podium train` in a
process of its own, so it can be repeated by hand; what it reached goes to `results/accuracy/ROW.json` as soon as it
ends. Accuracy is what counts: seconds are recorded, not compared.
"""

import difflib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from podium.bench import timing
from podium.errors import UserError
from podium.host.files import write_atomic
from podium.recipe.reading import from_run, load_recipe, to_dict
from podium.recipe.schema import Recipe
from podium.train import run_directory


@dataclass(frozen=True)
class Row:
    """One line of a table: `base` with `changes`, trained from each of `seeds`, by one process or several."""

    table: str
    changes: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    processes: int = 1
    base: str = "cifar10-sgd"

    def recipe(self, *more: str) -> Recipe:
        return load_recipe(self.base, [*self.changes, *more])


# A small network on images of half the size: about a fortieth of the baseline's work an image, so that a row takes
# minutes and still sees every image several times. Only rows are compared.
_SMALL = ("model.name=resnet7-narrow", "data.image_size=16")


def _rows() -> Iterator[tuple[str, Row]]:
    yield "baseline", Row("work")
    for name in ("cifar10", "cifar10-94"):
        yield name, Row("work", seeds=(0, 1, 2), base=name)
    for span in (2, 4, 8, 16, 32, 64):  # 16 chips of 4 images: 4 is local batch norm, 64 the whole batch
        batch = ("torus=4x4", "batch_global=64", "optimizer.learning_rate=0.095", f"model.norm_span={span}")
        yield f"span-{span}", Row("span", (*_SMALL, *_epochs(2), *batch), (0, 1, 2))
    # SGD by linear scaling from the baseline's 0.19 at 128, half of it, and a quarter at 8192, where both diverge;
    # LARS by square-root scaling, and double. At large batches the first rate also has twice the warm-up.
    for size, sgd, lars in ((256, 0.38, 2), (1024, 1.52, 4), (4096, 6.08, 8), (8192, 12.16, 12)):
        for optimizer, rates in (("sgd", (sgd, sgd / 2, sgd / 4)), ("lars", (lars, lars * 2))):
            tried = [(rate, 0.2) for rate in rates[: 3 if size == 8192 else 2]]
            for rate, warmup in [*tried, (rates[0], 0.4)] if size >= 4096 else tried:
                name = f"batch-{size}-{optimizer}-{rate:g}" + ("-slow" if warmup == 0.4 else "")
                changes = (f"batch_global={size}", "log_every_steps=1", _OPTIMIZERS[optimizer].format(rate=rate))
                yield name, Row("batch", (*_SMALL, *_epochs(12, warmup), *changes))
    # 1,562 steps at batch 512; the paper's run has 3,519 at its largest. Rates as above.
    for batch_size, peak in ((64, {"sgd": 0.095, "lars": 1.0}), (512, {"sgd": 0.76, "lars": 2.8})):
        for optimizer, share in itertools.product(("sgd", "lars"), (1.0, 0.5)):
            rate = peak[optimizer] * share
            of_batch = (f"batch_global={batch_size}", "model.norm_span=64", _OPTIMIZERS[optimizer].format(rate=rate))
            yield (
                f"steps-{batch_size}-{optimizer}-{rate:g}",
                Row("steps", (*_SMALL, *_epochs(16), *of_batch), (0, 1, 2)),
            )
    yield "chips-1x1-xla", Row("chips", _on_chips("1x1", "xla"), (0, 1, 2))  # the spread of seeds is the noise
    for torus, reduce in itertools.product(("2x2", "4x4"), ("xla", "ring", "torus")):
        yield f"chips-{torus}-{reduce}", Row("chips", _on_chips(torus, reduce))
    yield "chips-4x4-sharded", Row("chips", _on_chips("4x4", "torus", "sharded"))
    yield "chips-4x4-bf16-sum", Row("chips", (*_on_chips("4x4", "xla"), "gradient_sum=bf16"), (0, 1, 2))
    for reduce in ("xla", "ring", "torus"):
        yield f"processes-4-{reduce}", Row("chips", _on_chips("2x2", reduce), processes=4)
    for precision in ("fp32", "bf16"):
        yield f"precision-{precision}", Row("precision", (*_SMALL, *_epochs(3), f"precision={precision}"), (0, 1, 2))


_OPTIMIZERS = {
    "sgd": "optimizer.learning_rate={rate:g}",
    "lars": "optimizer="
    '{{name = "lars", learning_rate = {rate:g}, momentum = 0.85, weight_decay = 1.3e-3, trust = 0.01}}',
}


def _epochs(count: int, warmup: float = 0.2) -> tuple[str, ...]:
    """The changes for so many epochs, `warmup` of them to warm up; the baseline's share is about a fifth."""
    return f"epochs={count}", f"schedule.warmup_epochs={count * warmup:g}", f"evaluate_every_epochs={count / 3:g}"


def _on_chips(torus: str, reduce: str, weight_update: str = "replicated") -> tuple[str, ...]:
    batch = ("batch_global=256", "optimizer.learning_rate=0.38", "model.norm_span=64", "log_every_steps=1")
    return (*_SMALL, *_epochs(3), *batch, f"torus={torus}", f"reduce={reduce}", f"weight_update={weight_update}")


ROWS = dict(_rows())


def run(
    names: Sequence[str],
    data: str | Path,
    results: Path,
    *,
    runs: Path,
    seeds: Sequence[int] = (),
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Trains the rows on the prepared directory `data`, each from its seeds (or `seeds`), and writes their results.

    A run that was stopped resumes from its last checkpoint; a finished one in `runs` is read, not repeated.
    """
    for name in names:
        if name not in ROWS:
            near = difflib.get_close_matches(name, ROWS, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise UserError(f"there is no row {name!r}{hint}; podium bench accuracy without a row lists them")
    written = {}
    for name in names:
        for seed in seeds or ROWS[name].seeds:
            machine = timing.machine("jax", "jaxlib", "flax")  # before the run: the commit may move on while it lasts
            reached = _train(name, seed, data, run=runs / f"{name}-seed{seed}")
            written[name] = _record(name, {**reached, "machine": machine}, results / f"{name}.json")
            accuracy = reached["accuracy"]
            say(f"{name}, seed {seed}: {reached['diverged'] if accuracy is None else f'{accuracy:.2%}'}")
    return list(written.values())


def train_command(name: str) -> list[str]:
    """How to train this row by hand, but for --data, --run and a seed other than 0."""
    sets = [part for change in ROWS[name].changes for part in ("--set", change)]
    return ["podium", "train", "--recipe", ROWS[name].base, *sets]


def is_of(name: str, result: dict[str, Any]) -> bool:
    """Whether a result is of the row as it is now. The version of its order of images is one more seed, and what a
    recipe is called changes nothing."""
    then, now = from_run(result["recipe"]), ROWS[name].recipe()
    return replace(then, name=now.name, data=replace(then.data, order=now.data.order)) == now


def _train(name: str, seed: int, data: str | Path, *, run: Path) -> dict[str, Any]:
    if not _holds(run, ROWS[name].recipe(f"seed={seed}")):
        arguments = [*train_command(name)[1:], "--set", f"seed={seed}", "--data", str(data), "--run", str(run)]
        why = _run([*arguments, "--json"], ROWS[name].processes)
        if why and "; lower optimizer.learning_rate=" not in why:  # what is said of any divergence
            raise UserError(f"row {name}, seed {seed} was not trained: {why}")
        if why:
            return {"seed": seed, "accuracy": None, "diverged": why.partition(";")[0], **_curves(run)}
    summary = json.loads((run / "summary.json").read_text())
    kept = ("accuracy", "steps", "train_flops", "train_seconds", "images_per_second")
    return {"seed": seed, **{key: summary[key] for key in kept}, **_curves(run)}


def _run(arguments: list[str], processes: int) -> str:
    """Runs the podium command, where several processes are wanted under `podium launch`; why it failed, if it did."""
    launch = ["launch", "-n", str(processes), "--"] if processes > 1 else []
    command = [sys.executable, "-m", "podium", *launch, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = ended.stderr.strip().splitlines()
    # Where one process says what the matter is, the others only say that they have lost it, and later.
    explained = [line.removeprefix("podium: ") for line in lines if line.startswith("podium: ")]
    fatal = [line for line in lines if re.match(r"F\d{4} ", line)]  # of the runtime, before a stack of addresses
    return [*explained, *fatal, *lines[-1:], "no message"][0] if ended.returncode else ""


def _holds(run: Path, wanted: Recipe) -> bool:
    """Whether `run` is a finished run of this recipe."""
    if not (run / "summary.json").exists():
        return False
    theirs = run_directory.read(run).recipe
    filled = wanted.for_data(theirs.model.classes, theirs.data.train_images, theirs.data.validation_images)
    if theirs != filled:
        raise UserError(f"{run} holds a run of another recipe; choose another --runs, or remove it")
    return True


def _curves(run: Path) -> dict[str, list[list[float]]]:
    """[step, loss] and [epoch, top-1] as they were logged; what a resumed run did twice counts once."""
    losses, accuracies = {}, {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "train":
            losses[event["step"]] = [event["step"], round(event["loss"], 6)]
        elif event["event"] == "evaluation":
            accuracies[event["step"]] = [round(event["epoch"], 3), event["top1"]]
    return {"losses": [losses[s] for s in sorted(losses)], "evaluations": [accuracies[s] for s in sorted(accuracies)]}


def _record(name: str, reached: dict[str, Any], file: Path) -> dict[str, Any]:
    """The row's result with this run added, or put in place of an earlier one from the same seed. Runs of what the row
    was before are dropped."""
    earlier = json.loads(file.read_text()) if file.exists() else None
    kept = earlier["runs"] if earlier and is_of(name, earlier) else []
    runs = [r for r in kept if r["seed"] != reached["seed"]] + [reached]
    result = {
        "row": name,
        "table": ROWS[name].table,
        "command": f"podium bench accuracy {name} --data cifar10",
        "note": "two shared cores: accuracies count, seconds do not",
        "processes": ROWS[name].processes,
        "recipe": to_dict(ROWS[name].recipe()),
        "runs": sorted(runs, key=lambda r: r["seed"]),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, json.dumps(result) + "\n")
    return result
