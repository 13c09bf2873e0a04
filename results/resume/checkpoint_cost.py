"""What a checkpoint costs the demo: one run of it in which every other window of 10 steps holds one checkpoint, so that
windows with and without are neighbours in time. Prints JSON.

    python results/resume/checkpoint_cost.py RUN_DIRECTORY
"""

import json
import statistics
import sys
import time

from podium.host import compile_cache
from podium.recipe.reading import load_recipe
from podium.report import events
from podium.train import loop
from podium.train.run import train_recipe

WINDOW_STEPS = 10


class Clock(events.Listener):
    def __init__(self) -> None:
        self.times: list[float] = []

    def progress(self, event: events.Progress) -> None:
        self.times.append(time.perf_counter())


if __name__ == "__main__":
    compile_cache.enable()
    demo = load_recipe("demo").for_data(10, 4000, 1000)
    demo_saves = len(loop.evaluation_steps(demo).union(loop.checkpoint_steps(demo)))
    loop.checkpoint_steps = lambda r: range(2 * WINDOW_STEPS + 3, r.train_steps, 2 * WINDOW_STEPS)
    chosen = load_recipe("demo", [f"log_every_steps={WINDOW_STEPS}", "evaluate_every_epochs=100"])
    clock = Clock()
    summary = train_recipe(chosen, None, sys.argv[1], listener=clock)
    seconds = [b - a for a, b in zip(clock.times, clock.times[1:], strict=False)]
    pairs_count = (len(seconds) - 2) // 2
    without, with_one = seconds[0 : 2 * pairs_count + 1 : 2], seconds[1 : 2 * pairs_count : 2]
    pairs = [w - (a + b) / 2 for w, a, b in zip(with_one, without[:-1], without[1:], strict=True)]
    run_seconds = statistics.median(without) * demo.train_steps / WINDOW_STEPS
    cost, error = statistics.mean(pairs), statistics.stdev(pairs) / len(pairs) ** 0.5
    print(
        json.dumps(
            {
                "seconds_of_10_steps_without_median": round(statistics.median(without), 4),
                "seconds_of_10_steps_with_one_median": round(statistics.median(with_one), 4),
                "pairs": len(pairs),
                "seconds_per_checkpoint_mean": round(cost, 4),
                "seconds_per_checkpoint_standard_error": round(error, 4),
                "demo_checkpoints": demo_saves,
                "demo_train_seconds_without": round(run_seconds, 1),
                "share_of_demo": round(demo_saves * cost / run_seconds, 4),
                "share_of_demo_standard_error": round(demo_saves * error / run_seconds, 4),
            }
        )
    )
