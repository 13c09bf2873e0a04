"""What a checkpoint costs the demo: one run of it in which every other window of 50 steps holds one checkpoint, so that
windows with and without are neighbours in time. Prints JSON.

    python results/resume/checkpoint_cost.py RUN_DIRECTORY
"""

import json
import statistics
import sys
import time

from rich.console import Console

from podium import recipe
from podium.data.locate import locate
from podium.launch import compilation_cache
from podium.report import events
from podium.train import loop

WINDOW_STEPS = 50
DEMO_SAVES = 12 + 5  # every 50 of 625 steps (max_lost_steps = 100), and at five evaluations


class Clock(events.Listener):
    def __init__(self) -> None:
        self.times: list[float] = []

    def progress(self, event: events.Progress) -> None:
        self.times.append(time.perf_counter())


if __name__ == "__main__":
    compilation_cache.enable()
    loop.checkpoint_steps = lambda r: range(2 * WINDOW_STEPS + 10, r.train_steps, 2 * WINDOW_STEPS)
    chosen = recipe.load("demo", [f"log_every_steps={WINDOW_STEPS}", "evaluate_every_epochs=100"])
    clock = Clock()
    summary = loop.train_recipe(chosen, locate(None, Console(stderr=True)), sys.argv[1], listener=clock)
    seconds = [b - a for a, b in zip(clock.times, clock.times[1:], strict=False)]
    without, with_one = seconds[0:11:2], seconds[1:11:2]  # the first window, with its warm-up, ends at times[0]
    pairs = [w - (a + b) / 2 for w, a, b in zip(with_one, without, without[1:], strict=True)]
    run_seconds = statistics.median(without) * chosen.for_data(10, 4000, 1000).train_steps / WINDOW_STEPS
    cost = statistics.mean(pairs)
    print(
        json.dumps(
            {
                "seconds_of_50_steps_without": [round(s, 3) for s in without],
                "seconds_of_50_steps_with_one": [round(s, 3) for s in with_one],
                "seconds_per_checkpoint_mean": round(cost, 3),
                "seconds_per_checkpoint_least_most": [round(min(pairs), 3), round(max(pairs), 3)],
                "demo_checkpoints": DEMO_SAVES,
                "demo_train_seconds_without": round(run_seconds, 1),
                "share_of_demo": round(DEMO_SAVES * cost / run_seconds, 4),
            }
        )
    )
