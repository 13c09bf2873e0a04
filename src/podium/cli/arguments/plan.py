"""`podium plan`; its options are in `plan_options`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tyro.conf import arg

from podium.cli.arguments.command import Command, Overrides
from podium.cli.arguments.plan_options import PlanOptions

_DEFAULTS = PlanOptions()


@dataclass(frozen=True)
class Plan(Command):
    """Plan a run on a machine that is not here: does it fit, how fast is it, what limits it?"""

    set: Overrides = ()
    """Change a value of the recipe, as for `podium train`."""
    options: Annotated[PlanOptions, arg(name="")] = _DEFAULTS

    does: ClassVar[str] = "podium.cli.plan:plan"
    needs_device: ClassVar[bool] = False
