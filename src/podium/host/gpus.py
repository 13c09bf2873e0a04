"""What this host says of its NVIDIA GPUs without any CUDA program: the driver, memory that somebody uses already, and
whether the network can reach their memory directly. Everything is empty where there are none. And what NCCL is told.
"""

import os
import shutil
import subprocess
from pathlib import Path

from podium.errors import UserError

_DRIVER = Path("/sys/module/nvidia/version")
_FABRIC = Path("/sys/class/infiniband")
_QUERY = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")


def driver_version(file: Path = _DRIVER) -> str:
    return file.read_text().strip() if file.exists() else ""


def memory_used_bytes(tool: str = "nvidia-smi") -> list[int]:
    """Memory of each GPU that any program uses; empty where the tool is missing or fails."""
    if shutil.which(tool) is None:
        return []
    asked = subprocess.run([tool, *_QUERY], capture_output=True, text=True, timeout=30, check=False)
    lines = asked.stdout.split() if asked.returncode == 0 else []
    return [int(line) << 20 for line in lines if line.isdigit()]


def fabric(folder: Path = _FABRIC) -> list[str]:
    """InfiniBand and RoCE adapters that NCCL may use; without one it goes over TCP."""
    if os.environ.get("NCCL_IB_DISABLE") == "1" or not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir())


def sum_in_one_order() -> None:
    """Keeps NCCL from letting NVLink's switches add, which Hopper's can: their sums may differ from call to call
    (github.com/NVIDIA/nccl/issues/1497). Called before the first sum, when NCCL reads its environment."""
    if (given := os.environ.get("NCCL_NVLS_ENABLE", "0")) != "0":
        raise UserError(
            f"deterministic=true cannot hold with NCCL_NVLS_ENABLE={given}, with which NVLink's switches may add in "
            f"any order; unset NCCL_NVLS_ENABLE, or use --set deterministic=false"
        )
    os.environ["NCCL_NVLS_ENABLE"] = "0"


def share_out(processes: int, gpus: int, visible: str | None) -> list[str]:
    """CUDA_VISIBLE_DEVICES for each of so many processes of a host with `gpus` GPUs, of which those in `visible` may be
    used; empty where they cannot be shared equally."""
    names = [name for name in visible.split(",") if name] if visible is not None else [str(k) for k in range(gpus)]
    each, left = divmod(len(names), processes)
    return [",".join(names[k * each : (k + 1) * each]) for k in range(processes)] if each and not left else []
