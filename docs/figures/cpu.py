"""docs/cpu.md: the step beside PyTorch's, on two processors."""

from typing import Any

from docs.figures.sentences import newest, says, spread

HERE, OTHER = newest("step", "step")["cases"], newest("step", "avx2")["cases"]
LOSSES = newest("step", "same-losses")["largest_relative_difference"]


def rates(cases: dict[str, Any], name: str) -> tuple[float, float, float]:
    return cases[name]["podium"]["median"], cases[name]["pytorch"]["median"], cases[name]["torch_compile"]["median"]


PAGES = {
    "docs/cpu.md": [
        says(
            "`resnet7` takes {:,.0f} images/s beside {:.0f} for PyTorch eager and {:.0f} for torch.compile; "
            "ResNet-50 takes {:.1f} beside {:.1f} and {:.1f}",
            *(*rates(HERE, "cifar"), *rates(HERE, "resnet50")),
        ),
        says(
            "`resnet7` is {:.2f} ({:.2f}–{:.2f}) × the better of PyTorch's two and ResNet-50 {:.2f} ({:.2f}–{:.2f}) ×: "
            "{:.0f} images/s beside {:.0f}, and {:.1f} beside {:.1f}.",
            *(*spread(OTHER["cifar"]["ratio"]), *spread(OTHER["resnet50"]["ratio"])),
            *(*rates(OTHER, "cifar")[:2], *rates(OTHER, "resnet50")[:2]),
        ),
        says(
            "they differ by at most {:.1f} %, and XLA's own by {:.1f} %",
            *(100 * LOSSES["4 processes, native"], 100 * LOSSES["4 processes, xla"]),
        ),
    ]
}
