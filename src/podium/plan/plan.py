"""One plan: the recipe on the pod, compiled where that is possible, else counted, and estimated, with everything that a
person or a script wants to know about it. The command, a sweep and a search all call `make_plan`.
"""

from dataclasses import asdict, dataclass
from typing import Any

from podium.plan import collective_time, cuda, flow, gpu_estimate, gradient_sum, simulate
from podium.plan.count import Work, count
from podium.plan.cuda import GpuCompiled
from podium.plan.cuda_target import CARDS
from podium.plan.estimate import CONSTANTS, Constants, Estimate, Origin, Part, estimate
from podium.plan.gradient_sum import GradientSum
from podium.plan.hlo import Collective
from podium.plan.libtpu import Compiled, DoesNotFit, Stage, compiled, libtpu_version
from podium.plan.machines import Pod
from podium.recipe.schema import Recipe
from podium.recipe.torus import lay_out


@dataclass(frozen=True)
class Memory:
    """What one core needs, and has."""

    bytes: int
    limit_bytes: int
    origin: Origin


@dataclass(frozen=True)
class Plan:
    recipe: Recipe
    pod: Pod
    compiled: Compiled | GpuCompiled | None
    estimate: Estimate
    gradients: GradientSum
    memory: Memory
    cpu_images_per_second: float | None
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.memory.bytes <= self.memory.limit_bytes

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
            "memory_bytes_per_core": self.memory.bytes,
            "memory_limit_bytes": self.memory.limit_bytes,
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
                "memory_bytes_per_core": self.memory.origin,
                "memory_limit_bytes": Origin.ASSUMED,
                "allreduce": self.gradients.origin,
                "input": Origin.MEASURED if self.cpu_images_per_second else Origin.ASSUMED,
            },
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Facts:
    """What is known of a step before it is estimated."""

    compiled: Compiled | GpuCompiled | None
    work: Work | None  # counted where the compiler's cycles do not say enough
    shortage: DoesNotFit | None
    notes: tuple[str, ...]


def make_plan(
    recipe: Recipe,
    pod: Pod,
    stage: Stage = lambda text: None,
    *,
    cpu_images_per_second: float | None = None,
    compile_step: bool = True,
    constants: Constants = CONSTANTS,
) -> Plan:
    """Compiles unless told not to. A step that does not fit is planned all the same, by its count, and says so."""
    # Says so if the batch does not divide or the span does not fit.
    lay_out(pod.grid, recipe.batch_global, recipe.model.norm_span)
    return _assemble(
        recipe,
        pod,
        _find_out(recipe, pod, stage, compile_step=compile_step),
        cpu_images_per_second=cpu_images_per_second,
        constants=constants,
    )


def plan_compiled(recipe: Recipe, pod: Pod, facts: Compiled, *, constants: Constants = CONSTANTS) -> Plan:
    """The plan from what was compiled earlier, without input."""
    return _assemble(recipe, pod, Facts(facts, None, None, ()), constants=constants)


def _find_out(recipe: Recipe, pod: Pod, stage: Stage, *, compile_step: bool) -> Facts:
    """Asks the compiler, and counts where it has no answer or its cycles cannot be turned into seconds."""
    notes: list[str] = []
    facts: Compiled | GpuCompiled | None = None
    shortage = None
    if compile_step:
        try:
            facts = cuda.compiled(recipe, pod, stage) if pod.chip.is_gpu else compiled(recipe, pod, stage)
        except DoesNotFit as found:
            shortage = found
            notes.append("the compiler ran out of memory; times are counted, not compiled")
        if facts is None and shortage is None:
            notes.append(_why_not_compiled(pod))
    work = None
    if facts is None or (isinstance(facts, Compiled) and not pod.chip.clock_hz):
        stage("counting the step's work")
        work = count(recipe, recipe.batch_global // pod.cores)
    if isinstance(facts, Compiled) and not pod.chip.clock_hz:
        notes.append(f"the clock of {pod.chip.name} is not published; compute is counted against its peaks")
    if recipe.data.early_sizes:
        sizes, last = ", ".join(map(str, recipe.data.early_sizes)), recipe.data.image_size
        notes.append(f"every step is planned at {last} px; those at {sizes} px before are not counted apart")
    if pod.chip.is_gpu and recipe.precision == "fp32":
        notes.append("precision = fp32 is counted at bf16 peaks")
    if isinstance(facts, GpuCompiled):
        notes.append("memory is without cuDNN's workspaces, which are chosen on the card")
    return Facts(facts, work, shortage, tuple(notes))


def _assemble(
    recipe: Recipe,
    pod: Pod,
    facts: Facts,
    *,
    cpu_images_per_second: float | None = None,
    constants: Constants = CONSTANTS,
) -> Plan:
    known: Compiled | GpuCompiled | Work | tuple[Part, ...] | None = facts.work or facts.compiled
    assert known is not None
    if isinstance(known, GpuCompiled):
        known = gpu_estimate.parts(pod, known)
    of_step = estimate(recipe, pod, known, cpu_images_per_second=cpu_images_per_second, constants=constants)
    return Plan(
        recipe=recipe,
        pod=pod,
        compiled=facts.compiled,
        estimate=of_step,
        gradients=_gradients(recipe, pod, facts, of_step=of_step),
        memory=_memory(pod, facts),
        cpu_images_per_second=cpu_images_per_second,
        notes=facts.notes,
    )


def schedules(pod: Pod, message_bytes: float, constants: Constants = CONSTANTS) -> dict[str, dict[str, float]]:
    """Podium's own schedules on a pod, link by link, beside the closed forms."""
    if pod.chip.is_gpu:
        return {}
    if len(pod.shape) == 3:
        return _three_colours(pod, message_bytes, constants)
    shape, wraps = (pod.shape[1], pod.shape[0]), (pod.wraps[1], pod.wraps[0])
    link = pod.chip.link(constants.hop_seconds)
    closed = {
        "ring": collective_time.ring_seconds(pod.chips, message_bytes, link),
        "2-D": collective_time.torus_seconds(shape, message_bytes, link),
        "two-colour": collective_time.torus_seconds(shape, message_bytes, link, colours=2),
    }
    return {
        name: {
            "simulated_seconds": simulate.simulate(routes, shape, message_bytes, link=link, wraps=wraps).seconds,
            "closed_form_seconds": closed[name],
        }
        for name, routes in simulate.ALGORITHMS.items()
    }


def _three_colours(pod: Pod, message_bytes: float, constants: Constants) -> dict[str, dict[str, float]]:
    shape, wraps, link = pod.shape[::-1], pod.wraps[::-1], pod.chip.link(constants.hop_seconds)
    seconds = {
        "simulated_seconds": flow.torus_seconds(shape, message_bytes, link=link, wraps=wraps, pieces=1).seconds,
        "closed_form_seconds": collective_time.torus_seconds(shape, message_bytes, link, colours=3),
    }
    return {"three-colour": seconds}


def _why_not_compiled(pod: Pod) -> str:
    if pod.chip.is_gpu and pod.chip.name not in CARDS:
        return f"{pod.chip.name} is counted, not compiled: nobody has described it to XLA's GPU compiler"
    if pod.chip.is_gpu:
        return "XLA's GPU compiler is not installed, so nothing was compiled; make install EXTRAS=plan-gpu brings it"
    assert libtpu_version() is None
    return "libtpu is not installed, so nothing was compiled; make install EXTRAS=plan brings it"


def _memory(pod: Pod, facts: Facts) -> Memory:
    limit = pod.chip.memory_bytes_per_core
    if facts.compiled is not None:
        return Memory(facts.compiled.memory_bytes, limit, Origin.COMPILED)
    if facts.shortage is not None and facts.shortage.needed_bytes:
        return Memory(facts.shortage.needed_bytes, facts.shortage.limit_bytes, Origin.COMPILED)
    assert facts.work is not None
    counted = facts.work.memory_bytes
    return Memory(max(counted, limit + 1) if facts.shortage else counted, limit, Origin.MODELLED)


def _gradients(recipe: Recipe, pod: Pod, facts: Facts, *, of_step: Estimate) -> GradientSum:
    seconds = of_step.seconds_of("gradient summation")
    if facts.compiled is None:
        assert facts.work is not None
        return gradient_sum.assumed(pod, facts.work.gradient_bytes, seconds)
    if isinstance(facts.compiled, GpuCompiled):
        return gpu_estimate.gradient_sum(pod, facts.compiled, seconds)
    return gradient_sum.compiled(recipe, pod, facts.compiled.program, seconds=seconds)


def _compiled_json(facts: Compiled | GpuCompiled | None) -> dict[str, Any] | None:
    if facts is None:
        return None
    if isinstance(facts, GpuCompiled):
        return {**cuda.to_json(facts), "earlier": facts.earlier}
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
