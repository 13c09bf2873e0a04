"""Estimates a step's time from compiled or counted work: compute + what is not hidden of gradient summation, batch-norm
exchange and weight update, or the input where hosts cannot keep up; and from it images/s and the time to train. There
is one set of constants for every chip and pod. Each figure carries its origin: measured here, compiled, modelled or
assumed.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from podium.plan import collective_time
from podium.plan.count import Work
from podium.plan.hlo import Collective, Program
from podium.plan.libtpu import Compiled
from podium.plan.machines import CHIPS, Chip, Pod
from podium.recipe.schema import Recipe
from podium.step.update import is_sharded


class Origin(StrEnum):
    MEASURED = "measured"
    COMPILED = "compiled"
    MODELLED = "modelled"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class Constants:
    """What the estimate cannot know. `published.fit` finds the first two on half of the published results; the others
    are assumptions."""

    cycle_factor: float = 0.973  # real cycles for each that the compiler estimates, on a v3
    common_memory_gain: float = 1.28  # how much faster the memory of a chip with CMEM is than its HBM alone
    hop_seconds: float = 1e-6  # assumed: about 1 µs per hop is what is published
    # What a network reaches of the sum of its products' rooflines, and the images per core at which it reaches half of
    # that: read off the compiled v3 programs of 16, 32 and 128 images per core, assumed for every other chip.
    roofline_share: float = 0.465
    half_share_images: float = 7.25
    evaluation_share: float = 1 / 3  # modelled: an evaluated image costs the forward third of a trained one
    warmup_epochs: float = 1.0  # assumed: one epoch, untimed in the paper, fills the hosts' caches


CONSTANTS = Constants()


def bytes_per_cycle(chip: Chip) -> float:
    """What the memory moves in a cycle for each of the tensor cores that share it."""
    assert chip.clock_hz
    return chip.memory_bandwidth / chip.clock_hz / (chip.cores * chip.tensor_cores)


# The compiler's estimate is one of memory traffic, and the same for every chip: its cycles are bytes / 240 (226 … 255)
# for ResNet-50 at 8 … 128 images per v3 core, and one element-wise fusion takes 232,280 cycles on a v3 and 232,050 on a
# v4. Other chips' cycles are therefore scaled by what their memory moves in one.
V3_BYTES_PER_CYCLE = bytes_per_cycle(CHIPS["v3"])


@dataclass(frozen=True)
class Part:
    """A part of the step that nothing hides."""

    name: str
    seconds: float
    origin: Origin
    how: str


@dataclass(frozen=True)
class Estimate:
    """One recipe on one pod."""

    parts: tuple[Part, ...]
    device_seconds: float
    input_seconds: float
    step_seconds: float
    images_per_second: float  # while training, evaluations left out
    images_per_second_evaluated: float  # evaluations included, as published logs count
    evaluation_seconds: float  # all of them
    warmup_seconds: float
    train_seconds: float
    limit: str  # the largest part

    def seconds_of(self, name: str) -> float:
        """The part of that name."""
        return next(part.seconds for part in self.parts if part.name == name)


def estimate(
    recipe: Recipe,
    pod: Pod,
    facts: "Compiled | Work | tuple[Part, ...]",
    *,
    cpu_images_per_second: float | None = None,
    constants: Constants = CONSTANTS,
) -> Estimate:
    """The run of `recipe` on `pod`, by what was compiled or counted of its step, or by the step's parts. Without a rate
    at which one CPU core decodes, input is left out."""
    if isinstance(facts, tuple):
        parts = facts
    elif isinstance(facts, Compiled):
        parts = _compiled_parts(pod, facts.program, constants)
    else:
        parts = _counted_parts(recipe, pod, facts, constants=constants)
    device_seconds = sum(part.seconds for part in parts)
    input_seconds = 0.0
    if cpu_images_per_second:
        input_seconds = recipe.batch_global / pod.hosts / (cpu_images_per_second * pod.chip.host_cores)
    step_seconds = max(device_seconds, input_seconds)
    steps_per_epoch = recipe.data.train_images / recipe.batch_global
    training = recipe.epochs * steps_per_epoch * step_seconds
    forward = next(part.seconds for part in parts if part.name == "compute") * constants.evaluation_share
    steps_per_evaluation = math.ceil(recipe.data.validation_images / recipe.batch_global)
    evaluation_seconds = steps_per_evaluation * max(forward, input_seconds) * evaluations(recipe)
    warmup_seconds = constants.warmup_epochs * steps_per_epoch * step_seconds
    limit = max(parts, key=lambda part: part.seconds).name if input_seconds <= device_seconds else "input"
    return Estimate(
        parts=parts,
        device_seconds=device_seconds,
        input_seconds=input_seconds,
        step_seconds=step_seconds,
        images_per_second=recipe.batch_global / step_seconds,
        images_per_second_evaluated=recipe.epochs * recipe.data.train_images / (training + evaluation_seconds),
        evaluation_seconds=evaluation_seconds,
        warmup_seconds=warmup_seconds,
        train_seconds=warmup_seconds + training + evaluation_seconds,
        limit=limit,
    )


def evaluations(recipe: Recipe) -> int:
    return math.ceil(recipe.epochs / recipe.evaluate_every_epochs)


_OF_GRADIENTS = ("reduce-scatter", "all-gather", "collective-permute")  # batch norm only sums


def is_gradient_sum(collective: Collective, pod: Pod) -> bool:
    """Over the whole pod, or one phase of it: a scatter or gather along an axis, a hop. The others are the batch-norm
    tiles'."""
    return collective.cores == pod.cores or collective.kind in _OF_GRADIENTS


def second_per_cycle(chip: Chip, constants: Constants) -> float:
    """Seconds for one of the compiler's estimated cycles."""
    assert chip.clock_hz
    gain = constants.common_memory_gain if chip.common_memory else 1.0
    return constants.cycle_factor / chip.clock_hz * V3_BYTES_PER_CYCLE / bytes_per_cycle(chip) / gain


def exposed_seconds(collective: Collective, pod: Pod, constants: Constants) -> float:
    """What a collective takes beyond the work that is scheduled between its start and its end."""
    whole = collective_time.compiled_seconds(collective, pod, constants.hop_seconds)
    return max(0.0, whole - collective.overlapped_cycles * second_per_cycle(pod.chip, constants))


def _compiled_parts(pod: Pod, program: Program, constants: Constants) -> tuple[Part, ...]:
    seconds = second_per_cycle(pod.chip, constants)
    unpriced = program.unpriced_bytes / (pod.chip.memory_bandwidth / pod.chip.cores)
    compute = (program.cycles - program.update_cycles) * seconds + unpriced
    gradient = [c for c in program.collectives if is_gradient_sum(c, pod)]
    norm = [c for c in program.collectives if not is_gradient_sum(c, pod)]

    def exposed(collectives: list[Collective]) -> float:
        return sum(exposed_seconds(c, pod, constants) for c in collectives)

    return (
        Part("compute", compute, Origin.COMPILED, f"{program.cycles - program.update_cycles:,} cycles"),
        Part("gradient summation", exposed(gradient), Origin.MODELLED, f"α-β on {len(gradient)} compiled collectives"),
        Part("batch-norm exchange", exposed(norm), Origin.MODELLED, f"α-β on {len(norm)} compiled collectives"),
        Part(
            "weight update",
            program.update_cycles * seconds,
            Origin.COMPILED,
            f"{program.update_cycles:,} cycles behind the gradient sum",
        ),
    )


def _counted_parts(recipe: Recipe, pod: Pod, work: Work, *, constants: Constants) -> tuple[Part, ...]:
    """Without a compiler's word: rooflines, one fused gradient sum, one exchange each way per norm layer."""
    bandwidth = pod.chip.memory_bandwidth / pod.chip.cores
    tile = max(1, recipe.model.norm_span // (recipe.batch_global // pod.cores))
    exchange = 2 * work.norms * 2 * (tile - 1) * constants.hop_seconds
    batch_per_core = recipe.batch_global / pod.cores
    share = constants.roofline_share * batch_per_core / (batch_per_core + constants.half_share_images)
    sharded_by = pod.cores if is_sharded(recipe, pod.cores, on_cpu=False) else 1
    reads_and_writes = 5  # parameter, gradient and momentum in; parameter and momentum out
    return (
        Part(
            "compute",
            work.roofline_seconds(pod.chip) / share,
            Origin.MODELLED,
            f"{work.flops / 1e9:,.0f} GFLOP at {share:.0%} of each product's roofline",
        ),
        Part(
            "gradient summation",
            collective_time.all_reduce_seconds(pod, work.gradient_bytes, constants.hop_seconds)
            if pod.cores > 1
            else 0.0,
            Origin.MODELLED,
            f"α-β, {work.gradient_bytes / 1e6:.0f} MB",
        ),
        Part(
            "batch-norm exchange",
            exchange if tile > 1 else 0.0,
            Origin.MODELLED,
            f"{2 * work.norms if tile > 1 else 0} exchanges in tiles of {tile}",
        ),
        Part(
            "weight update",
            reads_and_writes * work.gradient_bytes / sharded_by / bandwidth,
            Origin.MODELLED,
            "bytes against memory bandwidth",
        ),
    )
