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
