"""The workloads of `podium bench step`, the same for Podium and for PyTorch."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Case:
    model: str
    stem: str
    image_size: int
    batch: int
    classes: int
    steps: int


CASES = {
    "cifar": Case("resnet7", "patches", 32, 128, 10, 8),
    "cifar-narrow": Case("resnet20", "conv3", 32, 128, 10, 2),
    "resnet18": Case("resnet18", "conv7", 64, 128, 100, 2),
    "resnet50": Case("resnet50", "conv7", 224, 16, 1000, 1),
}


def random_batch(case: Case) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (case.batch, case.image_size, case.image_size, 3), dtype=np.uint8)
    return image, rng.integers(0, case.classes, case.batch, dtype=np.int32)
