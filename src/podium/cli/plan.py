"""What `podium plan` does with its arguments: one plan, a sweep, a search or the check, shown and returned as JSON
types.
"""

import shlex
from dataclasses import asdict, fields
from typing import Any

from rich.console import Console

from podium.cli.arguments.plan import Plan as PlanCommand
from podium.cli.plan_options import PlanOptions
from podium.errors import UserError
from podium.plan import decode_rate, page, published, search
from podium.plan import show as report
from podium.plan.machines import CHIPS, Pod, parse_pod
from podium.plan.plan import Plan, make_plan, schedules
from podium.recipe.reading import load_recipe
from podium.recipe.schema import Recipe

# The options that each way of planning heeds.
_OF_EVERY_PLAN = ("recipe", "set", "topology", "analytic")
_HEEDED = {
    "--check": ("check", "fresh"),
    "--fit batch": (*_OF_EVERY_PLAN, "fit"),
    "--fit pod": (*_OF_EVERY_PLAN, "fit", "batch", "minutes"),
    "a sweep": (*_OF_EVERY_PLAN, "batch", "out"),
    "a single plan": (*_OF_EVERY_PLAN, "batch"),
}


def run(options: PlanOptions, sets: tuple[str, ...], console: Console) -> dict[str, Any]:
    batches = _numbers(options.batch)
    topologies = [text for text in options.topology.split(",") if text]
    several = len(topologies) > 1 or len(batches) > 1
    _refuse_idle(options, sets, several)
    if options.check:
        return _check(options.fresh, console)
    recipe = load_recipe(options.recipe, (*sets, *(f"batch_global={batch}" for batch in batches[:1])))
    if options.fit == "pod":
        name = options.topology.partition(":")[0]
        chip = CHIPS[name] if name in CHIPS else parse_pod(options.topology).chip
        return _one(search.smallest_pod(recipe, chip, options.minutes, *_planners(options, recipe, console)), console)
    pods = [parse_pod(text) for text in topologies]
    if not pods:
        raise UserError("--topology is empty; write for example --topology v3:32x32")
    if options.fit == "batch":
        return _one(search.largest_batch(recipe, pods[0], *_planners(options, recipe, console)), console)
    if several:
        return _sweep(options, sets, recipe, pods, batches, console)
    planned, _ = _planners(options, recipe, console)
    return _one(planned(recipe, pods[0]), console)


def _refuse_idle(options: PlanOptions, sets: tuple[str, ...], several: bool) -> None:
    """An option without effect is a misunderstanding: better told than ignored."""
    fit = f"--fit {options.fit}" if options.fit else ""
    way = "--check" if options.check else fit or ("a sweep" if several else "a single plan")
    given = [field.name for field in fields(options) if getattr(options, field.name) != field.default]
    idle = [name for name in (*given, *(["set"] if sets else [])) if name not in _HEEDED[way]]
    if idle:
        heeded = ", ".join(f"--{name}" for name in _HEEDED[way])
        raise UserError(f"--{' and --'.join(idle)} would do nothing for {way}, which heeds {heeded}; leave that out")
    if way == fit and several:
        raise UserError(f"{fit} starts from one --topology and one --batch, and several were given; give one of each")


def _planners(options: PlanOptions, recipe: Recipe, console: Console) -> tuple[search.Planner, search.Planner]:
    """One that plans as asked for, and one that counts, for a search's first guess; both with this machine's input."""
    rate = decode_rate.measure(recipe.data)

    def planned(recipe: Recipe, pod: Pod) -> Plan:
        with report.progress(console, str(pod)) as stage:
            return make_plan(recipe, pod, stage, cpu_images_per_second=rate, compile_step=not options.analytic)

    def counted(recipe: Recipe, pod: Pod) -> Plan:
        return make_plan(recipe, pod, cpu_images_per_second=rate, compile_step=False)

    return planned, counted


def _one(plan: Plan, console: Console) -> dict[str, Any]:
    simulated = schedules(plan.pod, plan.gradients.largest_bytes)
    report.show(plan, simulated, console)
    return {**plan.to_json(), "schedules": simulated}


def _sweep(
    options: PlanOptions,
    sets: tuple[str, ...],
    recipe: Recipe,
    pods: list[Pod],
    batches: list[int],
    console: Console,
) -> dict[str, Any]:
    if options.out:
        page.make_directory(options.out)
    planned, _ = _planners(options, recipe, console)
    rows = search.scaling(recipe, pods, batches, planned)
    report.show_sweep(rows, console)
    command = f"podium plan --recipe {shlex.quote(options.recipe)} --topology {options.topology}"
    command += f" --batch {options.batch}" if options.batch else ""
    command += "".join(f" --set {shlex.quote(text)}" for text in sets) + (" --analytic" if options.analytic else "")
    if options.out:
        title = f"{recipe.name}: {rows[0]['topology']} to {rows[-1]['topology']}"
        files = page.write(rows, options.out, title, command)
        console.print(f"written: {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
    return {"rows": rows}


def _check(fresh: bool, console: Console) -> dict[str, Any]:
    with report.progress(console, "published results") as stage:
        results = published.check(stage, fresh)
    summary = published.summary(results)
    report.show_check(results, summary, console)
    points = [
        {
            **asdict(result.point),
            "fitted": result.fitted,
            "predicted": result.predicted,
            "error": result.error,
            "compiled_with": result.compiled_with,
        }
        for result in results
    ]
    return {"points": points, **summary}


def _numbers(text: str) -> list[int]:
    parts = [part for part in text.replace("_", "").split(",") if part]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError(f"--batch {text!r} is neither a number nor several with commas; write --batch 16384,32768")
    return list(map(int, parts))


def plan(command: PlanCommand) -> dict[str, Any]:
    return run(command.options, command.set, Console(stderr=command.json))
