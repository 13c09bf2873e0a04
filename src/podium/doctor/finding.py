"""What the doctor says of one point."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["green", "yellow", "red"]


@dataclass(frozen=True)
class Finding:
    point: str
    level: Level
    found: str
    advice: str = ""
