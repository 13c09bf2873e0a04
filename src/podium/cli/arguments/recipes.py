"""`podium recipes`: what is shipped."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from podium.cli.arguments.command import Command


@dataclass(frozen=True)
class Recipes(Command):
    """List the shipped recipes, or show one. What is shown can be saved as a .toml file and changed."""

    name: Annotated[Positional[str], arg(metavar="NAME", help_behavior_hint="(default: list them)")] = ""
    """Recipe to show."""

    does: ClassVar[str] = "podium.cli.recipes:recipes"
    needs_device: ClassVar[bool] = False
