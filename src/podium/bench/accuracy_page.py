"""The tables and plots of docs/accuracy.md, from results/accuracy. A table stands between two marks of the page and is
replaced there; a plot is an SVG beside the page. Nothing here trains, and a row without a result, or with one of
another recipe, has no line.
"""

import json
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from podium.bench.accuracy import ROWS, is_of
from podium.errors import UserError
from podium.host.files import reporting, write_atomic
from podium.mesh import recipe_mesh
from podium.recipe.reading import from_run
from podium.recipe.schema import Recipe
from podium.recipe.torus import parse_torus
from podium.report import chart
from podium.step.programs import batch_shapes, build_step
from podium.step.work import flops

Result = dict[str, Any]


def redraw(page: Path, results: Path) -> None:
    """Replaces what stands between `<!-- table NAME -->` and `<!-- end -->`, and writes accuracy-NAME.svg."""
    with reporting(page, "give the page with the tables", action="read"):
        text = page.read_text()
    for table, rows in read(results).items():
        place = re.search(rf"<!-- table {table} -->\n(.*?)<!-- end -->", text, re.DOTALL)
        if not place:
            raise UserError(f"{page} has no place for table {table}; add <!-- table {table} --> and <!-- end -->")
        text = f"{text[: place.start(1)]}{TABLES[table](rows)}\n{text[place.end(1) :]}"
        if table in PLOTS:
            write_atomic(page.parent / f"accuracy-{table}.svg", PLOTS[table](rows))
    write_atomic(page, text)


def read(results: Path) -> dict[str, list[Result]]:
    """The results by table, in the order of `ROWS`."""
    tables: dict[str, list[Result]] = {}
    for name, row in ROWS.items():
        file = results / f"{name}.json"
        if file.exists() and is_of(name, result := json.loads(file.read_text())):
            tables.setdefault(row.table, []).append(result)
    return tables


def accuracies(result: Result) -> list[float]:
    """The accuracy in per cent; a run that diverged has none."""
    return [100 * run["accuracy"] for run in result["runs"] if run["accuracy"] is not None]


def mean_and_spread(result: Result) -> str:
    """'76.12 ± 0.31 (3 seeds)': mean and standard deviation, or the one value."""
    values, diverged = accuracies(result), [r["diverged"] for r in result["runs"] if r["accuracy"] is None]
    if not values:
        return f"diverged: {diverged[0]}"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f} ({len(values)} seeds)"


def _table(header: str, lines: list[tuple[Any, ...]]) -> str:
    columns = header.count("|") + 1
    rows = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([f"| {header} |", "|" + "---|" * columns, *rows])


def _work(rows: list[Result]) -> str:
    lines = []
    for r in rows:
        recipe = r["recipe"]
        lines.append(
            (
                f"`{ROWS[r['row']].base}`",
                recipe["model"]["name"],
                recipe["optimizer"]["name"],
                f"{recipe['epochs']:g}",
                f"{_pflop(r):.3f}",
                f"{statistics.mean(x['train_seconds'] for x in r['runs']) / 60:.0f}",
                mean_and_spread(r),
            )
        )
    return _table("recipe | network | optimizer | epochs | PFLOP | minutes | top-1 %", lines)


def _pflop(result: Result) -> float:
    """The work of a run, counted now where it is older than the counting."""
    flops = result["runs"][0].get("train_flops") or counted_flops(
        from_run(result["recipe"]).for_data(10, 50_000, 10_000)
    )
    return float(flops) / 1e15


def counted_flops(recipe: Recipe) -> float:
    """The work of a whole run, from a trace of its step."""
    step = build_step(recipe, recipe_mesh(recipe))
    batch = batch_shapes(recipe, step, recipe.steps_per_dispatch)
    traced = step.train.trace(jax.eval_shape(step.init), batch)
    return flops(traced.jaxpr.jaxpr) * recipe.train_steps / recipe.steps_per_dispatch


def _span(rows: list[Result]) -> str:
    return _table(
        "span (examples) | chips that share | top-1 %",
        [(_span_of(r), _sharing(r["recipe"]), mean_and_spread(r)) for r in rows],
    )


def _span_of(result: Result) -> int:
    return int(result["recipe"]["model"]["norm_span"])


def _sharing(recipe: dict[str, Any]) -> str:
    per_chip = recipe["batch_global"] // parse_torus(recipe["torus"]).chips
    span = recipe["model"]["norm_span"]
    if span < per_chip:
        return f"a chip's {per_chip} are split"
    return "1 (local)" if span == per_chip else str(span // per_chip)


def _batch(rows: list[Result]) -> str:
    lines = []
    for r in rows:
        optimizer, steps = r["recipe"]["optimizer"], _steps(r)
        best = r is _best(rows, r["recipe"]["batch_global"], optimizer["name"])
        reached = f"**{mean_and_spread(r)}**" if best else mean_and_spread(r)
        name, warmup = optimizer["name"].upper(), r["recipe"]["schedule"]["warmup_epochs"]
        rate = f"{optimizer['learning_rate']:g}"
        lines.append((r["recipe"]["batch_global"], steps, name, rate, f"{warmup:g}", reached))
    return _table("batch | steps | optimizer | peak rate | warm-up epochs | top-1 %", lines)


def _steps(result: Result) -> int:
    recipe = result["recipe"]
    return round(recipe["epochs"] * recipe["data"]["train_images"] / recipe["batch_global"])


def _best(rows: list[Result], batch: int, optimizer: str) -> Result:
    alike = [r for r in rows if (r["recipe"]["batch_global"], r["recipe"]["optimizer"]["name"]) == (batch, optimizer)]
    return max(alike, key=lambda r: statistics.mean(accuracies(r) or [0.0]))


def _chips(rows: list[Result]) -> str:
    one_chip = next((_losses(r) for r in rows if r["row"] == "chips-1x1-xla"), None)
    lines = []
    for r in rows:
        compared: tuple[str, ...] = ("–", "–")
        if one_chip and r["row"] != "chips-1x1-xla":
            apart = {step: abs(loss - one_chip[step]) for step, loss in _losses(r).items()}
            compared = tuple(f"{max(a for step, a in apart.items() if step <= upto):.1e}" for upto in (10, max(apart)))
        lines.append((_where(r), *compared, mean_and_spread(r)))
    header = "torus, reduction | largest loss difference, first 10 steps | whole run | top-1 %"
    return _table(header, lines)


def _where(result: Result) -> str:
    recipe, processes = result["recipe"], result["processes"]
    update = ", sharded update" if recipe["weight_update"] == "sharded" else ""
    update += ", bf16 sum" if recipe.get("gradient_sum") == "bf16" else ""
    return f"{recipe['torus']} {recipe['reduce']}{update}{f', {processes} processes' if processes > 1 else ''}"


def _losses(result: Result) -> dict[int, float]:
    return {int(step): loss for step, loss in result["runs"][0]["losses"]}


def _precision(rows: list[Result]) -> str:
    return _table("convolutions | top-1 %", [(r["recipe"]["precision"], mean_and_spread(r)) for r in rows])


def _plot_work(rows: list[Result]) -> str:
    series = []
    for r in rows:
        values: dict[float, list[float]] = {}
        for run in r["runs"]:
            for epoch, top1 in run["evaluations"]:
                at = round(_pflop(r) * epoch / r["recipe"]["epochs"], 3)
                values.setdefault(at, []).append(100 * top1)
        series.append(chart.Series(ROWS[r["row"]].base, {at: seen for at, seen in values.items()}))
    most = max(at for s in series for at in s.values)
    goals = [chart.Series("goal", {0.0: [goal], most: [goal]}, dashed=True) for goal in (93.0, 94.0)]
    title = "CIFAR-10: top-1 by work done; dashed: the goals, 93 and 94 %"
    return _draw(title, chart.Axis("PFLOP, of convolutions and products"), "top-1 %", series=[*goals, *series])


def _plot_span(rows: list[Result]) -> str:
    local = 4  # below it nothing is learned, and the rest would be drawn as one flat line
    series = chart.Series("top-1", {_span_of(r): accuracies(r) for r in rows if _span_of(r) >= local})
    title = "Batch-norm span, from local up, batch 64 on 16 chips of 4 images"
    return _draw(title, chart.Axis("examples that share statistics", log=True), "top-1 %", series=[series])


def _plot_batch(rows: list[Result]) -> str:
    series = []
    for optimizer in ("sgd", "lars"):
        batches = sorted({r["recipe"]["batch_global"] for r in rows if r["recipe"]["optimizer"]["name"] == optimizer})
        values = {batch: accuracies(_best(rows, batch, optimizer)) for batch in batches}
        series.append(chart.Series(optimizer.upper(), {batch: v for batch, v in values.items() if v}))
    title = "Batch size at fixed epochs, best of the settings tried"
    return _draw(title, chart.Axis("global batch", log=True), "top-1 %", series=[s for s in series if s.values])


def _plot_chips(rows: list[Result]) -> str:
    drawn = ("chips-1x1-xla", "chips-2x2-torus", "chips-4x4-torus", "processes-4-torus")
    series = [chart.Series(_where(r), _means(_losses(r), 20), dots=False) for r in rows if r["row"] in drawn]
    return _draw("Training loss on 1, 4 and 16 chips, means of 20 steps", chart.Axis("step"), "loss", series=series)


def _means(values: dict[int, float], count: int) -> dict[float, Sequence[float]]:
    steps = sorted(values)
    parts = [steps[first : first + count] for first in range(0, len(steps), count)]
    return {float(part[-1]): [sum(values[step] for step in part) / len(part)] for part in parts}


def _draw(title: str, x: chart.Axis, y_label: str, *, series: list[chart.Series]) -> str:
    return chart.draw(chart.Panel(title, x, chart.Axis(y_label), series))


TABLES: dict[str, Callable[[list[Result]], str]] = {
    "work": _work,
    "span": _span,
    "batch": _batch,
    "steps": _batch,
    "chips": _chips,
    "precision": _precision,
}
PLOTS: dict[str, Callable[[list[Result]], str]] = {
    "work": _plot_work,
    "span": _plot_span,
    "batch": _plot_batch,
    "steps": _plot_batch,
    "chips": _plot_chips,
}
