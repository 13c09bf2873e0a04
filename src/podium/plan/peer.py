"""What a peer's step is, in words that a worker process can be told; `peer_step` writes it in flax.linen and optax."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Peer:
    """What is compiled: plain JSON types, so that a worker process can be told."""

    batch_global: int
    norm_span: int = 0  # examples that share batch-norm statistics; 0: the whole batch
    optimizer: Literal["sgd", "lars"] = "lars"
    stem: Literal["conv7", "space_to_depth"] = "conv7"
    image_layout: Literal["NHWC", "HWCN", "HWNC"] = "NHWC"  # as the hosts deliver images
    label_smoothing: float = 0.1
    gradient_sum: Literal["fp32", "bf16"] = "fp32"
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    image_size: int = 224


def peer_from_json(table: dict[str, Any]) -> Peer:
    return Peer(**{**table, "blocks": tuple(table["blocks"])})
