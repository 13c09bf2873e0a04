"""How long a sum over GPUs should take by what their links are sold as, to hold a measured one against. Only for cards
whose figures are known; for others nothing is expected.
"""

from dataclasses import dataclass

SUM_BYTES = 64 << 20  # large enough that bandwidth decides, and not latency
_REACHED = 0.8  # what NCCL's own tests reach of it on an idle machine


@dataclass(frozen=True)
class Links:
    """Bytes/s one way, from NVIDIA's data sheets."""

    between_gpus: float
    out_of_host: float


_LINKS = {
    "A100": Links(300e9, 200e9),
    "H100": Links(450e9, 400e9),
    "H200": Links(450e9, 400e9),
    "B200": Links(900e9, 400e9),
}


def expected_seconds(kind: str, *, hosts: int, gpus_per_host: int) -> float:
    """For a sum of SUM_BYTES over all GPUs of a kind, as JAX names it; 0 where nobody knows."""
    links = next((links for name, links in _LINKS.items() if name in kind), None)
    if links is None or hosts * gpus_per_host < 2:
        return 0.0
    inside = 2 * (gpus_per_host - 1) / gpus_per_host * SUM_BYTES / links.between_gpus
    outside = 2 * (hosts - 1) / hosts * SUM_BYTES / links.out_of_host
    return (inside + outside) / _REACHED
