"""The doctor's judgement of what is special to GPUs: who else uses their memory, how NCCL reaches other hosts, and a
sum against what the links should give. Pure functions of facts.
"""

from collections.abc import Sequence

from podium.doctor.finding import Finding
from podium.doctor.links import SUM_BYTES
from podium.doctor.observe import Host, Work

_IDLE_BYTES = 1 << 30  # what a driver and a display may hold
_SLOW = 2.0


def judge_gpus(hosts: Sequence[Host]) -> list[Finding]:
    """Nothing where no host has a GPU."""
    if not any(host.gpu_driver for host in hosts):
        return []
    return [_memory(hosts), _network(hosts)]


def _memory(hosts: Sequence[Host]) -> Finding:
    for host in hosts:
        for gpu, used in enumerate(host.gpu_memory_used_bytes):
            if used > _IDLE_BYTES:
                found = f"GPU {gpu} of {host.host} has {used / 1e9:.1f} GB in use before the run"
                return Finding("GPU memory", "yellow", found, "nvidia-smi shows by whom; end it, or expect less memory")
    return Finding("GPU memory", "green", f"free on all; driver {hosts[0].gpu_driver}")


def _network(hosts: Sequence[Host]) -> Finding:
    if len({host.host for host in hosts}) == 1:
        return Finding("GPU network", "green", "one host: NVLink or PCIe")
    for host in hosts:
        if not host.fabric:
            found = f"NCCL on {host.host} goes over TCP: no InfiniBand or RoCE adapter is seen there"
            advice = "load its driver, show /sys/class/infiniband to the container, unset NCCL_IB_DISABLE"
            return Finding("GPU network", "yellow", found, advice)
    return Finding("GPU network", "green", f"{len(hosts[0].fabric)} InfiniBand or RoCE adapters per host")


def judge_links(works: Sequence[Work]) -> Finding | None:
    """A large sum that takes more than twice what the links should; None if it does not, or nobody knows."""
    taken, expected = works[0].large_sum_seconds, works[0].expected_sum_seconds
    if not expected or taken <= _SLOW * expected:
        return None
    found = (
        f"{SUM_BYTES >> 20} MB over all GPUs in {taken * 1e3:.1f} ms, where their links should need "
        f"{expected * 1e3:.1f} ms"
    )
    advice = "NCCL_DEBUG=INFO shows which way it goes; nvidia-smi topo -m shows the links"
    return Finding("all-reduce", "yellow", found, advice)
