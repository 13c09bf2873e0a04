"""What `podium plan` does with its arguments: one plan, a sweep, a search or the check, shown and returned as JSON
types.
"""

import shlex
from dataclasses import fields
from functools import cache
from typing import Any

from rich.console import Console

from podium.cli.arguments.plan import Plan as PlanCommand
from podium.cli.arguments.plan_options import PlanOptions
from podium.errors import UserError
from podium.mesh import pass_over_compilers
from podium.plan import cuda, decode_rate, gpu_published, gpu_show, page, published, search
from podium.plan import show as report
from podium.plan.machines import CHIPS, Pod, parse_pod
from podium.plan.plan import Plan, make_plan, schedules
from podium.recipe.reading import load_recipe
from podium.recipe.schema import Recipe

# The options that each way of planning uses.
_OF_EVERY_PLAN = ("recipe", "set", "topology", "counted")
_USED = {
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
    planners = _planners(options, recipe, console)
    if options.fit == "pod":
        name = options.topology.partition(":")[0]
        chip = CHIPS[name] if name in CHIPS else parse_pod(options.topology).chip
        return _one(search.smallest_pod(recipe, chip, planners, minutes=options.minutes), console)
    pods = [parse_pod(text) for text in topologies]
    if not pods:
        raise UserError("--topology is empty; write for example --topology v3:32x32")
    if options.fit == "batch":
        return _one(search.largest_batch(recipe, pods[0], planners), console)
    if not several:
        return _one(planners.as_asked(recipe, pods[0]), console)
    if options.out:
        page.make_directory(options.out)
    rows = search.scaling(recipe, pods, batches, planner=planners.as_asked)
    report.show_sweep(rows, console)
    if options.out:
        title = f"{recipe.name}: {rows[0]['topology']} to {rows[-1]['topology']}"
        files = page.write(rows, options.out, title=title, command=_command(options, sets))
        console.print(f"written: {', '.join(map(str, files))}", highlight=False, soft_wrap=True)
    return {"rows": rows}


def _refuse_idle(options: PlanOptions, sets: tuple[str, ...], several: bool) -> None:
    """An option without effect is a misunderstanding: better told than ignored."""
    fit = f"--fit {options.fit}" if options.fit else ""
    way = "--check" if options.check else fit or ("a sweep" if several else "a single plan")
    given = [field.name for field in fields(options) if getattr(options, field.name) != field.default]
    idle = [name for name in (*given, *(["set"] if sets else [])) if name not in _USED[way]]
    if idle:
        used = ", ".join(f"--{name}" for name in _USED[way])
        raise UserError(f"--{' and --'.join(idle)} would do nothing for {way}, which uses {used}; leave that out")
    if way == fit and several:
        raise UserError(f"{fit} starts from one --topology and one --batch, and several were given; give one of each")


def _planners(options: PlanOptions, recipe: Recipe, console: Console) -> search.Planners:
    """One that plans as asked for, and one that counts, for a search's first guess; both with this machine's input,
    which is measured when the first plan is made."""
    rate = cache(lambda: decode_rate.measure(recipe.data))

    def as_asked(recipe: Recipe, pod: Pod) -> Plan:
        with report.progress(console, str(pod)) as stage:
            return make_plan(recipe, pod, stage, cpu_images_per_second=rate(), compile_step=not options.counted)

    def counted(recipe: Recipe, pod: Pod) -> Plan:
        return make_plan(recipe, pod, cpu_images_per_second=rate(), compile_step=False)

    return search.Planners(as_asked, counted)


def _one(plan: Plan, console: Console) -> dict[str, Any]:
    simulated = schedules(plan.pod, plan.gradients.largest_bytes)
    report.show(plan, simulated, console)
    return {**plan.to_json(), "schedules": simulated}


def _command(options: PlanOptions, sets: tuple[str, ...]) -> str:
    """What was typed, for the page."""
    command = f"podium plan --recipe {shlex.quote(options.recipe)} --topology {options.topology}"
    command += f" --batch {options.batch}" if options.batch else ""
    return command + "".join(f" --set {shlex.quote(text)}" for text in sets) + (" --counted" if options.counted else "")


def _check(fresh: bool, console: Console) -> dict[str, Any]:
    with report.progress(console, "published results") as stage:
        found = published.check(stage, fresh=fresh)
        if fresh and cuda.plugin_version():
            gpu_published.compile_all(stage)
    report.show_check(found, console)
    on_gpus = gpu_published.check()
    gpu_show.show_check(on_gpus, console)
    return {**published.to_json(found), "gpus": gpu_published.to_json(on_gpus)}


def _numbers(text: str) -> list[int]:
    parts = [part for part in text.replace("_", "").split(",") if part]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError(f"--batch {text!r} is neither a number nor several with commas; write --batch 16384,32768")
    return list(map(int, parts))


def plan(command: PlanCommand) -> dict[str, Any]:
    pass_over_compilers()
    return run(command.options, command.set, Console(stderr=command.json))
