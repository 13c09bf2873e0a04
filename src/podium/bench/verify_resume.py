"""Proof that resume is exact, on this machine: a small run is killed with SIGKILL at random moments, also inside the
write of a checkpoint, and started again until it ends; its weights must then be those of a run that was never stopped.
With `chaos` other things happen to it too (`chaos`). The runs are real `podium train` processes (`small_run`).
"""

import collections
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from podium.bench.chaos import DISTURBANCES
from podium.bench.small_run import MAX_LOST_STEPS, SmallRun

_STEPS_PER_KILL = 12  # what a run is longer by for each kill that it must live through


@dataclass(frozen=True)
class Verified:
    kills: int
    """What happened to it, in all."""
    happened: dict[str, int]
    """How often each."""
    seed: int
    identical: bool
    lost_steps_max: int
    """By a SIGKILL."""
    max_lost_steps: int
    """What the recipe allows to be lost."""
    kills_inside_a_write: int
    rounds: int
    """Runs from their beginning to their end: another is begun while kills are left."""
    restart_seconds_max: float
    """From the start of a process to its first step."""
    weights_hash: str


def verify_resume(
    kills: int = 25, seed: int = 0, say: Callable[[str], None] = lambda _: None, *, chaos: bool = False
) -> Verified:
    with tempfile.TemporaryDirectory(prefix="podium-verify-") as folder:
        run = SmallRun(Path(folder), steps=_STEPS_PER_KILL * max(5, kills), rng=random.Random(seed))
        run.make_data()
        say(f"seed {seed}; a run that is not stopped")
        expected = run.to_its_end("whole")
        rounds, hashes, happened = 0, set(), collections.Counter[str]()
        kinds = _kinds(run.rng, list(DISTURBANCES) if chaos else ["SIGKILL"])
        while happened.total() < kills:
            rounds += 1
            name = f"disturbed-{rounds}"
            while happened.total() < kills and DISTURBANCES[kind := next(kinds)](run, name):
                happened[kind] += 1
                say(f"{happened.total()}. {kind}{_cost(run) if kind == 'SIGKILL' else ''}")
            hashes.add(run.to_its_end(name))
        return Verified(
            kills=happened.total(),
            happened=dict(happened),
            seed=seed,
            identical=hashes == {expected},
            lost_steps_max=max(run.lost, default=0),
            max_lost_steps=MAX_LOST_STEPS,
            kills_inside_a_write=sum(run.inside),
            rounds=rounds,
            restart_seconds_max=round(max(run.restart_seconds), 1),
            weights_hash=expected,
        )


def _kinds(rng: random.Random, kinds: list[str]) -> Iterator[str]:
    """All of them in a random order, again and again."""
    while True:
        yield from rng.sample(kinds, len(kinds))


def _cost(run: SmallRun) -> str:
    where = "inside a write" if run.inside[-1] else "between writes"
    return f" after step {run.reached}, {where}; {run.lost[-1]} steps lost"
