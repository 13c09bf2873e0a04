"""What `podium doctor` and `podium verify-resume` do."""

import random
import sys
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Console

from podium.bench.verify_resume import verify_resume
from podium.cli import several
from podium.cli.arguments.health import Doctor, VerifyResume
from podium.doctor.doctor import examine
from podium.doctor.show import show
from podium.recipe.reading import load_recipe


def doctor(command: Doctor) -> dict[str, Any]:
    recipe = load_recipe(command.recipe, command.set)
    several.join(command)
    console = Console(stderr=command.json, highlight=False, markup=False, quiet=not several.is_first())
    with console.status("") as status:
        need = command.images_per_second
        report = examine(recipe, command.data, command.run, need_images_per_second=need, say=status.update)
    show(report, console)
    return asdict(report)


def verify(command: VerifyResume) -> dict[str, Any]:
    say = partial(print, file=sys.stderr if command.json else sys.stdout, flush=True)
    seed = random.randrange(1 << 16) if command.seed is None else command.seed
    verified = verify_resume(command.kills, seed, say, chaos=command.chaos)
    say("identical weights" if verified.identical else "THE WEIGHTS DIFFER", end="; ")
    say(f"at most {verified.lost_steps_max} steps lost, {verified.max_lost_steps} allowed")
    return asdict(verified)
