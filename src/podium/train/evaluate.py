"""Exact evaluation: sharded over the chips, padded to whole batches, the padding masked; every image is counted once,
or the run fails. Totals stay on the devices until the last batch.
"""

import time
from collections.abc import Callable
from typing import Any

import jax

from podium.data.dataset.shards import ImageSet
from podium.data.input.loader import EvalLoader
from podium.data.input.prefetch import Feed, local_rows
from podium.recipe.schema import Recipe
from podium.report.events import Evaluated
from podium.step.programs import Step
from podium.step.state import State


class Evaluator:
    """Evaluates states on all of `images`."""

    def __init__(self, recipe: Recipe, step: Step, images: ImageSet, *, cache_budget_bytes: int | None = None) -> None:
        self._step, self._images, self._batch_global = step, images, recipe.batch_global
        rows = local_rows(step.eval_batches, recipe.batch_global)
        self._loader = EvalLoader(images, recipe.data, recipe.batch_global, rows=rows, budget=cache_budget_bytes)

    def __call__(
        self,
        state: State,
        steps: int,
        epoch: float,
        *,
        program: Callable[..., Any] | None = None,
        between_batches: Callable[[], None] = lambda: None,
    ) -> Evaluated:
        """The exact accuracy of `state`; `steps` and `epoch` say how far it was trained. `program` is `step.evaluate`,
        compiled ahead; `between_batches` may end the evaluation with an exception."""
        program = program or self._step.evaluate
        began = time.perf_counter()
        totals = self._step.zero_totals()
        indices = range(self._loader.batches)
        step, batch_global = self._step, self._batch_global
        with Feed(self._loader, indices, step.eval_batches, batch_global=batch_global, packed=step.packed) as feed:
            for batch in feed:
                before, totals = totals, program(state, totals, batch)
                # Two batches are under way, not all: with 157 sent at once, 16 simulated chips on two cores stopped in
                # a collective until XLA ended the process (seen in five of 16 runs; not in 70 evaluations since).
                jax.block_until_ready(before)
                between_batches()
        counted = jax.device_get(totals)
        images = int(counted["images"])
        if images != len(self._images):
            raise RuntimeError(f"evaluation counted {images} images of {len(self._images)}")
        return Evaluated(
            step=steps,
            epoch=epoch,
            images=images,
            top1=float(counted["top1"] / images),
            top5=float(counted["top5"] / images),
            loss=float(counted["loss"] / images),
            seconds=time.perf_counter() - began,
            raw_top1=float(counted["raw_top1"] / images) if "raw_top1" in counted else None,
        )
