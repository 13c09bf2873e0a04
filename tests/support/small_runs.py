"""A run that takes seconds: 24 steps of a small network on the tests' small data, and one who notes all it tells."""

from typing import Any

from podium.recipe.reading import from_dict
from podium.report import events


def small_recipe(**changes):
    table = {
        "epochs": 4, "batch_global": 16, "torus": "1x2", "evaluate_every_epochs": 2, "log_every_steps": 1,
        "max_lost_steps": 8,
        "data": {"image_size": 16, "min_area": 0.5},
        "model": {"name": "resnet8", "stem": "conv7", "norm_span": 8},
        "optimizer": {"name": "sgd", "learning_rate": 0.05},
        "schedule": {"decay": "cosine", "warmup_epochs": 1},
    }  # fmt: skip
    return from_dict({**table, **changes})


class Heard(events.Listener):
    def __init__(self):
        self.all: list[Any] = []
        for name in ("note", "started", "progress", "evaluated", "finished"):
            setattr(self, name, self.all.append)

    def of(self, kind):
        return [event for event in self.all if isinstance(event, kind)]


class At(events.Listener):
    """Does something when a step is reported."""

    def __init__(self, step, action):
        self._step, self._action = step, action

    def progress(self, event):
        if event.step == self._step:
            self._action()
