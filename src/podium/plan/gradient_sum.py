"""How the gradients are summed, for a person: the algorithm that the compiler chose, or what is taken for it."""

from dataclasses import dataclass

from podium.plan.estimate import Origin, is_gradient_sum
from podium.plan.hlo import Collective, Program
from podium.plan.machines import Pod
from podium.recipe.schema import Recipe
from podium.step.update import is_sharded


@dataclass(frozen=True)
class GradientSum:
    """How the gradients are summed."""

    words: str
    two_colour_2d: bool
    collectives: int
    bytes: int  # of all of them
    largest_bytes: int
    seconds: float
    origin: Origin  # of the algorithm


def assumed(pod: Pod, gradient_bytes: int, seconds: float) -> GradientSum:
    """Where no compiler was asked."""
    gpu = pod.chip.is_gpu
    words = "NVLink inside a node, InfiniBand between nodes" if gpu else "taken to be the paper's sum"
    two_colour = not gpu and len(pod.shape) == 2
    return GradientSum(words, two_colour, 1, gradient_bytes, gradient_bytes, seconds, Origin.ASSUMED)


def compiled(recipe: Recipe, pod: Pod, program: Program, *, seconds: float) -> GradientSum:
    """What the compiler made of it."""
    sums = [c for c in program.collectives if is_gradient_sum(c, pod)]
    if not sums:
        return GradientSum("one core: there is nothing to sum", False, 0, 0, 0, 0.0, Origin.COMPILED)
    largest = max(sums, key=lambda c: c.whole_bytes)
    words = in_words(largest)
    if largest.kind == "collective-permute":
        words = f"Podium's own {recipe.reduce} schedule in {len(sums)} messages"
    if is_sharded(recipe, pod.cores, on_cpu=False):
        words += "; every core updates its share of the weights"
    return GradientSum(
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
