"""What every command of the command line has."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Command:
    json: bool = False
    """Make the last line of stdout one JSON object."""
    debug: bool = False
    """Show the traceback of an error."""

    def exit_code(self, result: Any) -> int:
        return 0
