"""Where Podium keeps what it can make again."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/podium, by default ~/.cache/podium."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podium"
