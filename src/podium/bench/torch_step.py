"""PyTorch's side of `bench step`: the same ResNet v1.5, loss and optimizer, written as a PyTorch user would."""

import os
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from podium.bench.step_case import Case, random_batch
from podium.models.pooled import POOLED, Pooled, patch_filters
from podium.models.resnet import SHAPES, Shape

_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
_STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


class _Block(nn.Module):
    def __init__(self, c_in: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        c_out = width * 4 if bottleneck else width
        plan = [(1, 1, width), (3, stride, width), (1, 1, c_out)] if bottleneck else [(3, stride, width), (3, 1, c_out)]
        layers: list[nn.Module] = []
        channels = c_in
        for kernel, step, out in plan:
            layers += [_conv(channels, out, kernel, stride=step), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
            channels = out
        nn.init.zeros_(layers[-2].weight)
        self.branch = nn.Sequential(*layers[:-1])
        project = stride != 1 or c_in != c_out
        self.shortcut = (
            nn.Sequential(_conv(c_in, c_out, 1, stride=stride), nn.BatchNorm2d(c_out)) if project else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.branch(x) + self.shortcut(x))


def _conv(c_in: int, c_out: int, kernel: int, *, stride: int) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False)


def _resnet(shape: Shape, stem: str, classes: int) -> nn.Sequential:
    firsts: dict[str, list[nn.Module]] = {
        "conv7": [_conv(3, shape.width, 7, stride=2)],
        "conv3": [_conv(3, shape.width, 3, stride=1)],
        "fold3": [nn.PixelUnshuffle(2), _conv(12, shape.width, 3, stride=1)],
    }
    layers = [*firsts[stem], nn.BatchNorm2d(shape.width), nn.ReLU(inplace=True)]
    if stem == "conv7":
        layers.append(nn.MaxPool2d(3, 2, 1))
    channels = shape.width
    for stage, blocks in enumerate(shape.blocks):
        width = shape.width * 2**stage
        for i in range(blocks):
            layers.append(_Block(channels, width, 2 if stage > 0 and i == 0 else 1, bottleneck=shape.bottleneck))
            channels = width * 4 if shape.bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class _Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filters", torch.from_numpy(patch_filters()).permute(3, 2, 0, 1))
        self.bias = nn.Parameter(torch.zeros(patch_filters().shape[-1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(nn.functional.conv2d(x, self.filters, self.bias))


class _Stage(nn.Module):
    def __init__(self, c_in: int, c_out: int, *, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.widen = nn.Sequential(
            _conv(c_in, c_out, 3, stride=1), nn.MaxPool2d(2), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True)
        )
        self.refine = nn.Sequential(_conv(c_out, c_out, 3, stride=1), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.widen(x)
        return x + self.refine(x) if self.residual else self.refine(x)


def _pooled(shape: Pooled, classes: int) -> nn.Sequential:
    channels = (patch_filters().shape[-1], *shape.widths)
    stages = [_Stage(c_in, c_out, residual=shape.residual) for c_in, c_out in pairwise(channels)]
    return nn.Sequential(_Patches(), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], classes))


def _network(case: "Case") -> nn.Sequential:
    if case.model in POOLED:
        return _pooled(POOLED[case.model], case.classes)
    return _resnet(SHAPES[case.model], case.stem, case.classes)


def build(case: "Case", *, compiled: bool) -> Callable[[], int]:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model: nn.Module = _network(case).to(memory_format=torch.channels_last)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
    image, label = random_batch(case)
    pixels = torch.from_numpy(image).permute(0, 3, 1, 2)  # channels last in memory, as it comes
    target = torch.from_numpy(label.astype(np.int64))

    def loss_of_batch() -> torch.Tensor:
        x = (pixels.float() / 255 - _MEAN) / _STD
        return loss_of(model(x), target)

    if compiled:
        loss_of_batch = torch.compile(loss_of_batch)

    def run() -> int:
        for _ in range(case.steps):
            loss = loss_of_batch()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return case.batch * case.steps

    return run
