"""Accelerators that this machine has, whatever JAX will see of them."""

import os


def accelerator_files() -> list[str]:
    """Device files that speak of an accelerator, whatever JAX will see."""
    return [file for file in ("/dev/nvidia0", "/dev/accel0", "/dev/vfio/0", "/dev/kfd") if os.path.exists(file)]
