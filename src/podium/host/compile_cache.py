"""Compiled programs, kept in the user's cache directory so that a restart does not compile again. XLA's CPU programs
hold instructions of the processor that compiled them, so each kind of processor has its own folder: a home directory
may be shared by many.
"""

import hashlib
import os
import platform
import re
import warnings
from pathlib import Path
from typing import Any

import jax

from podium.host.paths import cache_directory

_MIN_COMPILE_SECONDS = 0.5
_UNREADABLE = re.compile(r"Error reading persistent compilation cache entry for '([\w.-]+)'")


def enable() -> Path:
    """Call this before JAX compiles anything. JAX itself is safe across processes: only process 0 writes."""
    folder = cache_directory() / "jax" / _processor()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    least = float(os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", _MIN_COMPILE_SECONDS))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
    warnings.showwarning = _repairing(folder, warnings.showwarning)
    return folder


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"


def _repairing(folder: Path, show: Any) -> Any:
    """JAX writes an entry in place and never over an old one, so what a kill has cut off would be met at every start.
    It warns and compiles; here the entry goes, and the next start writes it whole."""

    def heard(message: Warning | str, *details: Any, **more: Any) -> None:
        if found := _UNREADABLE.match(str(message)):
            for entry in folder.glob(f"{found.group(1)}-*"):
                entry.unlink(missing_ok=True)
        else:
            show(message, *details, **more)

    return heard
