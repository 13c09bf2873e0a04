"""Many plans side by side: pods or batches in a row, the largest batch that fits a pod, the smallest pod that meets a
time. Searches start where the count says and ask the compiler only about the neighbours, a compilation each, all
cached.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from podium.errors import UserError
from podium.plan.machines import Chip, Pod, usual_sizes
from podium.plan.plan import Plan
from podium.recipe.schema import Recipe
from podium.recipe.torus import lay_out, valid_spans

Planner = Callable[[Recipe, Pod], Plan]


class Planners(NamedTuple):
    """How to plan: `as_asked` may ask the compiler, `counted` never does."""

    as_asked: Planner
    counted: Planner


_COMMUNICATION = ("gradient summation", "batch-norm exchange")


def scaling(recipe: Recipe, pods: Sequence[Pod], batches: Sequence[int], *, planner: Planner) -> list[dict[str, Any]]:
    """One row per pod and batch. Efficiency is images/s per chip, relative to the first row's."""
    rows: list[dict[str, Any]] = []
    for pod in pods:
        for batch in batches or (recipe.batch_global,):
            plan = planner(replace(recipe, batch_global=batch), pod)
            parts = {part.name: part for part in plan.estimate.parts}
            per_chip = plan.estimate.images_per_second / pod.chips
            rows.append(
                {
                    **plan.to_json(),
                    "images_per_second_per_chip": per_chip,
                    "efficiency": per_chip / rows[0]["images_per_second_per_chip"] if rows else 1.0,
                    "communication_share": sum(parts[name].seconds for name in _COMMUNICATION)
                    / plan.estimate.step_seconds,
                    "compute_origin": parts["compute"].origin,
                }
            )
    return rows


def largest_batch(recipe: Recipe, pod: Pod, planners: Planners) -> Plan:
    """The plan with the most images per core that fits."""
    candidates = [batch for batch in _batches_per_core() if _divides(recipe, pod, batch)]
    if not candidates:
        valid = ", ".join(map(str, valid_spans(pod.grid, recipe.batch_global)))
        raise UserError(f"no batch suits model.norm_span={recipe.model.norm_span} on {pod}; spans that do: {valid}")

    def plan_at(k: int, plan: Planner = planners.as_asked) -> Plan:
        return plan(replace(recipe, batch_global=candidates[k] * pod.cores), pod)

    counted = _last_true(len(candidates), lambda k: plan_at(k, planners.counted).fits)
    found = _climb(counted, len(candidates), lambda k: plan_at(k).fits)
    if found is None:
        smallest = plan_at(0)
        raise UserError(
            f"{recipe.name} does not fit {pod} even with {candidates[0]} images per core "
            f"({smallest.memory.bytes / 2**30:.1f} of {smallest.memory.limit_bytes / 2**30:.0f} GiB); "
            f"use a smaller network or image"
        )
    return plan_at(found)


def smallest_pod(recipe: Recipe, chip: Chip, planners: Planners, *, minutes: float) -> Plan:
    """The plan on the fewest chips that trains within `minutes`."""
    sizes = usual_sizes(chip)
    pods = [pod for pod in sizes if _divides(recipe, pod, recipe.batch_global / pod.cores)]
    if not pods:
        batches = " or ".join(map(str, _nearest_batches(recipe, sizes[0])))
        raise UserError(
            f"no {chip.name} pod divides batch_global={recipe.batch_global} with model.norm_span="
            f"{recipe.model.norm_span}; use --batch {batches}"
        )

    def too_slow(k: int, plan: Planner = planners.as_asked) -> bool:
        planned = plan(recipe, pods[k])
        return not planned.fits or planned.estimate.train_seconds > minutes * 60

    counted = _last_true(len(pods), lambda k: too_slow(k, planners.counted))
    slow = _climb(counted, len(pods), too_slow)
    if slow == len(pods) - 1:
        fastest = planners.as_asked(recipe, pods[-1]).estimate
        raise UserError(
            f"no {chip.name} pod trains {recipe.name} within {minutes:g} minutes; the fastest, {pods[-1]}, takes "
            f"{fastest.train_seconds / 60:.1f}, limited by {fastest.limit}; use a larger --batch or a different chip"
        )
    return planners.as_asked(recipe, pods[0 if slow is None else slow + 1])


def _batches_per_core() -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, … 65536."""
    return sorted({2**k for k in range(17)} | {3 * 2**k for k in range(15)})


def _divides(recipe: Recipe, pod: Pod, batch_per_core: float) -> bool:
    batch_global = round(batch_per_core * pod.cores)
    try:
        lay_out(pod.grid, batch_global, recipe.model.norm_span)
    except UserError:
        return False
    return batch_per_core >= 1 and batch_global % recipe.model.norm_span == 0


def _nearest_batches(recipe: Recipe, pod: Pod) -> list[int]:
    """Below and above the recipe's batch, those that `pod` divides with the recipe's span."""
    span, batch = recipe.model.norm_span, recipe.batch_global
    whole = span * pod.cores  # a span, or several, for every core; below that, cores share one
    shared = [span * k for k in range(1, pod.cores) if _divides(recipe, pod, span * k / pod.cores)]
    valid = sorted({*shared, whole, batch // whole * whole, -(-batch // whole) * whole} - {0})
    return [b for b in valid if b < batch][-1:] + [b for b in valid if b > batch][:1]


def _last_true(count: int, holds: Callable[[int], bool]) -> int | None:
    """The last k that holds, where none holds behind one that does not."""
    low, high = -1, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return None if low < 0 else low


def _climb(start: int | None, count: int, holds: Callable[[int], bool]) -> int | None:
    """Like `_last_true`, but walks from a good guess."""
    k = start if start is not None else 0
    if holds(k):
        while k + 1 < count and holds(k + 1):
            k += 1
        return k
    while k > 0:
        k -= 1
        if holds(k):
            return k
    return None
