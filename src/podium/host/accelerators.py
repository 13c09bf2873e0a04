"""Accelerators that this machine has, whatever JAX will see of them."""

import os
from glob import glob

# TPUs, AMD's GPUs, and NVIDIA's under Windows' Linux. A container may have any one of a host's NVIDIA cards.
_FILES = ("/dev/accel0", "/dev/vfio/0", "/dev/kfd", "/dev/dxg")


def accelerator_files() -> list[str]:
    """Device files that speak of an accelerator, whatever JAX will see."""
    return [*nvidia_files(), *(file for file in _FILES if os.path.exists(file))]


def nvidia_files() -> list[str]:
    """One for each NVIDIA GPU."""
    return sorted(glob("/dev/nvidia[0-9]*"))


def unused_accelerator(platform: str) -> str | None:
    """What to say where JAX computes on the CPU though it was not told to and an accelerator is there."""
    files = accelerator_files()
    if platform != "cpu" or not files or os.environ.get("JAX_PLATFORMS"):
        return None
    extra = "cuda12 (or cuda13)" if nvidia_files() else "tpu"
    return f"{files[0]} is there, but JAX computes on the CPU; make install EXTRAS={extra} brings what it needs"
