"""`build_step` for the runs of tests: those of one recipe on the same chips share their programs, which are traced and
compiled once. A step's programs hold nothing of a run."""

import functools

from podium.step.programs import build_step

shared = functools.lru_cache(maxsize=8)(build_step)
