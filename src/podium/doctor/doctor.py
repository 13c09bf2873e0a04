"""`podium doctor`: looks at every process of a run, and at all of them together, before the run is launched. Started
like the run itself (once per host, by the same launcher), or alone. The processes observe (`observe`), tell
process 0 what they saw (`agree`), and hear its judgement (`judge`). It trains nothing and leaves nothing behind.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from podium.data.dataset.shards import ImageSet
from podium.doctor import judge
from podium.doctor.finding import Finding, Level
from podium.doctor.observe import Host, Work, existing_folder, observe_host, observe_work
from podium.errors import UserError
from podium.mesh import build_mesh, find_devices
from podium.processes import agree
from podium.recipe.schema import Recipe
from podium.recipe.torus import lay_out

_CLASSES_WITHOUT_DATA = 1000


@dataclass(frozen=True)
class Report:
    level: Level
    findings: tuple[Finding, ...]
    hosts: tuple[Host, ...]
    """What was observed, in the order of ranks, at process 0; `works` is empty if the devices were not started."""
    works: tuple[Work, ...]


def examine(
    recipe: Recipe,
    data: Path | None,
    run: Path,
    *,
    need_images_per_second: float = 0.0,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """The report of all processes, each of which must call this; all get the same findings. Where hosts disagree on
    what to run, or do not find each other, their devices are not started."""
    say("looking at the hosts")
    hosts = [Host(**host) for host in agree.collect(asdict(observe_host(recipe, data, run)))]
    clock_seconds, run_is_seen = _clock_seconds(), _sees_the_run(run)
    findings = _told(lambda: judge.judge_hosts(hosts, clock_seconds, run_is_seen))
    if any(f.level == "red" for f in findings if f.point in ("versions", "recipe", "data", "names")):
        return Report("red", tuple(findings), tuple(hosts), ())
    say("decoding, multiplying and summing a little")
    try:
        recipe = _filled_in(recipe, data)
        shape, devices = find_devices(recipe.torus)
        torus = lay_out(shape, recipe.batch_global, recipe.model.norm_span)
        mesh = build_mesh(torus, devices)
    except UserError as error:  # from what all processes have in common, so all meet it
        findings.append(Finding("devices", "red", str(error), "start as many processes as the torus needs"))
        return Report("red", tuple(findings), tuple(hosts), ())
    observed = observe_work(recipe, mesh, data, processes_here=agree.processes_on_this_host())
    works = [Work(**work) for work in agree.collect(asdict(observed))]
    findings += _told(
        lambda: judge.judge_work(
            hosts,
            works,
            torus=str(torus),
            batch_global=recipe.batch_global,
            need_images_per_second=need_images_per_second,
        )
    )
    return Report(judge.worst(findings), tuple(findings), tuple(hosts), tuple(works))


def _told(judge_all: Callable[[], list[Finding]]) -> list[Finding]:
    """What process 0 finds, who alone has seen what all saw."""
    return [Finding(**found) for found in agree.on_first(lambda: [asdict(found) for found in judge_all()])]


def _filled_in(recipe: Recipe, data: Path | None) -> Recipe:
    """The recipe with the numbers of the data set filled in, or those of ImageNet if there is none."""
    if data:
        images, validation = ImageSet.open(data, "train"), ImageSet.open(data, "validation")
        return recipe.for_data(len(images.classes), len(images), len(validation))
    return replace(recipe, model=replace(recipe.model, classes=recipe.model.classes or _CLASSES_WITHOUT_DATA))


def _clock_seconds() -> list[float]:
    """How far each process's clock is ahead of process 0's, as far as moments after a barrier can show: the smallest of
    a few differences, since all that a busy host can do is to make one larger. Empty but at process 0."""

    def once() -> list[float]:
        agree.meet()
        clocks = agree.collect(time.time())
        return [clock - clocks[0] for clock in clocks]

    return [min(of_one, key=abs) for of_one in zip(*(once() for _ in range(5)), strict=True)]


def _sees_the_run(run: Path) -> list[bool]:
    """Whether each process sees a file that process 0 makes where the run will be. Empty but at process 0."""
    marker = existing_folder(run) / agree.on_first(lambda: f".podium-doctor-{uuid.uuid4().hex}")
    agree.on_first(lambda: _touch(marker))
    seen = agree.collect(marker.exists())
    agree.on_first(lambda: marker.unlink(missing_ok=True))
    return seen


def _touch(marker: Path) -> bool:
    try:
        marker.touch()
    except OSError:
        return False
    return True
