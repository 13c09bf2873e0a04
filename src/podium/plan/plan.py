"""One plan: the recipe on the pod, compiled where that is possible, priced by the model, with everything a person or a
script wants to know about it. `make_plan` is what the command, the sweep, the fit and the check against published
results all call.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from podium.plan import collective_time as cost
from podium.plan import simulate
from podium.plan.count import Work, count
from podium.plan.estimate import CONSTANTS, Constants, Estimate, Origin, estimate, is_gradient_sum
from podium.plan.hlo import Collective
from podium.plan.libtpu import Compiled, DoesNotFit, compiled, libtpu_version
from podium.plan.machines import Pod
from podium.recipe.schema import Recipe
from podium.recipe.torus import Shape, lay_out
from podium.step.update import is_sharded

Stage = Callable[[str], None]


@dataclass(frozen=True)
class Gradients:
    """How the gradients are summed."""

    words: str
    two_colour_2d: bool
    collectives: int
    bytes: int  # of all of them
    largest_bytes: int
    seconds: float
    origin: Origin  # of the algorithm


@dataclass(frozen=True)
class Plan:
    recipe: Recipe
    pod: Pod
    compiled: Compiled | None
    estimate: Estimate
    gradients: Gradients
    memory_bytes: int
    memory_limit_bytes: int
    memory_origin: Origin
    cpu_images_per_second: float | None
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.memory_bytes <= self.memory_limit_bytes

    @property
    def cpu_cores_per_host(self) -> float | None:
        """CPU cores of this machine's kind that each host needs to keep its chips fed."""
        if self.cpu_images_per_second is None:
            return None
        return self.recipe.batch_global / self.estimate.device_seconds / self.pod.hosts / self.cpu_images_per_second

    def to_json(self) -> dict[str, Any]:
        e = self.estimate
        how = Origin.MODELLED
        return {
            "recipe": self.recipe.name,
            "topology": str(self.pod),
            "chips": self.pod.chips,
            "cores": self.pod.cores,
            "hosts": self.pod.hosts,
            "batch_global": self.recipe.batch_global,
            "batch_per_core": self.recipe.batch_global // self.pod.cores,
            "images_per_second": e.images_per_second,
            "images_per_second_with_evaluation": e.images_per_second_evaluated,
            "step_seconds": e.step_seconds,
            "train_minutes": e.train_seconds / 60,
            "warmup_seconds": e.warmup_seconds,
            "evaluation_seconds": e.evaluation_seconds,
            "parts": [asdict(part) for part in e.parts],
            "limit": e.limit,
            "memory_bytes_per_core": self.memory_bytes,
            "memory_limit_bytes": self.memory_limit_bytes,
            "fits": self.fits,
            "allreduce": asdict(self.gradients),
            "input": {
                "images_per_second_per_cpu_core": self.cpu_images_per_second,
                "cpu_cores_per_host": self.cpu_cores_per_host,
                "seconds": e.input_seconds,
            },
            "compiled": _compiled_json(self.compiled),
            "origins": {
                "images_per_second": how,
                "step_seconds": how,
                "train_minutes": how,
                "memory_bytes_per_core": self.memory_origin,
                "memory_limit_bytes": Origin.ASSUMED,
                "allreduce": self.gradients.origin,
                "input": Origin.MEASURED if self.cpu_images_per_second else Origin.ASSUMED,
            },
            "notes": list(self.notes),
        }


def make_plan(
    recipe: Recipe,
    pod: Pod,
    stage: Stage = lambda text: None,
    *,
    cpu_images_per_second: float | None = None,
    compiled_earlier: Compiled | None = None,
    compile_step: bool = True,
    fresh: bool = False,
    constants: Constants = CONSTANTS,
) -> Plan:
    """Compiles unless told not to, or given what was compiled earlier; `fresh` compiles even what is in the cache. A
    step that does not fit is planned all the same, by its count, and says so."""
    # Says so if the batch does not divide or the span does not fit.
    lay_out(Shape(*pod.grid), recipe.batch_global, recipe.model.norm_span)
    notes: list[str] = []
    facts, shortage, work = compiled_earlier, None, None
    if facts is None and compile_step:
        try:
            facts = compiled(recipe, pod, stage, fresh=fresh)
        except DoesNotFit as found:
            shortage = found
            notes.append("the compiler ran out of memory; times are counted, not compiled")
        if facts is None and shortage is None:
            notes.append(_why_not_compiled(pod))
    if facts is not None and not pod.chip.clock_hz:
        notes.append(f"the clock of {pod.chip.name} is not published; compute is counted against its peaks")
    if facts is None or not pod.chip.clock_hz:
        stage("counting the step's work")
        work = count(recipe, recipe.batch_global // pod.cores)
    if pod.chip.is_gpu and recipe.precision == "fp32":
        notes.append("precision = fp32 is counted at bf16 peaks")
    of_step = estimate(recipe, pod, work, facts, cpu_images_per_second, constants)
    memory, limit, origin = _memory(pod, facts, shortage, work)
    return Plan(
        recipe=recipe,
        pod=pod,
        compiled=facts,
        estimate=of_step,
        gradients=_gradients(recipe, pod, facts, work, of_step),
        memory_bytes=memory,
        memory_limit_bytes=limit,
        memory_origin=origin,
        cpu_images_per_second=cpu_images_per_second,
        notes=tuple(notes),
    )


def schedules(pod: Pod, message_bytes: float, constants: Constants = CONSTANTS) -> dict[str, dict[str, float]]:
    """Podium's own schedules on a 2-D pod, link by link, beside the closed forms."""
    if len(pod.shape) != 2 or pod.chip.is_gpu:
        return {}
    shape, wraps = (pod.shape[1], pod.shape[0]), (pod.wraps[1], pod.wraps[0])
    bandwidth, hop = pod.chip.link_bandwidth, constants.hop_seconds
    closed = {
        "ring": cost.ring_seconds(pod.chips, message_bytes, bandwidth, hop),
        "2-D": cost.torus_seconds(shape, message_bytes, bandwidth, hop),
        "two-colour": cost.torus_seconds(shape, message_bytes, bandwidth, hop, colours=2),
    }
    return {
        name: {
            "simulated_seconds": simulate.simulate(routes, shape, message_bytes, bandwidth, hop, wraps).seconds,
            "closed_form_seconds": closed[name],
        }
        for name, routes in simulate.ALGORITHMS.items()
    }


def _why_not_compiled(pod: Pod) -> str:
    if pod.chip.is_gpu:
        return "GPU clusters are counted, not compiled: no compiler for them runs without one"
    assert libtpu_version() is None
    return "libtpu is not installed, so nothing was compiled; make install EXTRAS=plan brings it"


def _memory(
    pod: Pod, facts: Compiled | None, shortage: DoesNotFit | None, work: Work | None
) -> tuple[int, int, Origin]:
    if facts is not None:
        return facts.memory_bytes, pod.chip.memory_bytes_per_core, Origin.COMPILED
    if shortage is not None and shortage.needed_bytes:
        return shortage.needed_bytes, shortage.limit_bytes, Origin.COMPILED
    assert work is not None
    needed = max(work.memory_bytes, pod.chip.memory_bytes_per_core + 1) if shortage else work.memory_bytes
    return needed, pod.chip.memory_bytes_per_core, Origin.MODELLED


def _gradients(recipe: Recipe, pod: Pod, facts: Compiled | None, work: Work | None, of_step: Estimate) -> Gradients:
    seconds = next(part.seconds for part in of_step.parts if part.name == "gradient summation")
    if facts is None:
        assert work is not None
        gpu = pod.chip.is_gpu
        words = "NVLink inside a node, InfiniBand between nodes" if gpu else "taken to be the paper's sum"
        two_colour = not gpu and pod.chip.axes == 2
        size = work.gradient_bytes
        return Gradients(words, two_colour, 1, size, size, seconds, Origin.ASSUMED)
    sums = [c for c in facts.program.collectives if is_gradient_sum(c, pod)]
    if not sums:
        return Gradients("one core: there is nothing to sum", False, 0, 0, 0, 0.0, Origin.COMPILED)
    largest = max(sums, key=lambda c: c.whole_bytes)
    words = in_words(largest)
    if largest.kind == "collective-permute":
        words = f"Podium's own {recipe.reduce} schedule in {len(sums)} messages"
    if is_sharded(recipe, pod.cores, on_cpu=False):
        words += "; every core updates its share of the weights"
    return Gradients(
        words=words,
        two_colour_2d=is_two_colour_2d(largest),
        collectives=len(sums),
        bytes=sum(c.whole_bytes for c in sums),
        largest_bytes=largest.whole_bytes,
        seconds=seconds,
        origin=Origin.COMPILED,
    )


def is_two_colour_2d(collective: Collective) -> bool:
    """Two axes, two phases, and both orders of the axes at once."""
    return collective.phases == 2 and set(collective.axes_of_colours) == {(0, 1), (1, 0)}


def in_words(collective: Collective) -> str:
    """The algorithm that the compiler chose, for a person."""
    if not collective.phases:
        return f"{collective.kind} by {collective.emitter or 'an algorithm that the compiler does not name'}"
    orders = sorted(set(collective.axes_of_colours))
    ways = " and ".join("→".join("XYZ"[axis] for axis in order) for order in orders)
    two = is_two_colour_2d(collective)
    verdict = (
        "the paper's two-colour 2-D algorithm"
        if two
        else f"{len(orders)}-colour {collective.phases}-D, not the two-colour 2-D algorithm"
    )
    rings = "×".join(map(str, collective.rings[0]))
    return (
        f"{verdict}: {collective.kind} by {collective.strategy}, {len(orders)} colours ({ways}), "
        f"{collective.phases} phases, rings of {rings} cores"
    )


def _compiled_json(facts: Compiled | None) -> dict[str, Any] | None:
    if facts is None:
        return None
    return {
        "cycles": facts.program.cycles,
        "update_cycles": facts.program.update_cycles,
        "flops": facts.flops,
        "bytes_accessed": facts.bytes_accessed,
        "collectives": _tally(facts.program.collectives),
        "compile_seconds": facts.compile_seconds,
        "versions": facts.versions,
        "earlier": facts.earlier,
    }


def _tally(collectives: tuple[Collective, ...]) -> list[dict[str, Any]]:
    """Collectives of a kind together: how many, how many bytes."""
    tally: dict[tuple[Any, ...], dict[str, Any]] = {}
    for c in collectives:
        key = (c.kind, c.cores, c.emitter, c.strategy)
        entry = tally.setdefault(
            key,
            {"kind": c.kind, "cores": c.cores, "emitter": c.emitter, "strategy": c.strategy, "colours": c.colours,
             "phases": c.phases, "count": 0, "bytes": 0},
        )  # fmt: skip
        entry["count"] += 1
        entry["bytes"] += c.bytes
    return list(tally.values())
