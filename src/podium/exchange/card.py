"""What stands beside exported weights: config.json, as timm writes and reads it, and README.md, a hub's model card.
Both say how an image has to be cut and normalised."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import podium
from podium.recipe.reading import to_dict
from podium.recipe.schema import Recipe

_TORCHVISION = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
_TORCHVISION_EPSILON = 1e-5


@dataclass(frozen=True)
class About:
    """What is known about a trained network."""

    run: str
    step: int
    recipe: Recipe
    """As it was trained."""
    classes: tuple[str, ...]
    accuracy: float | None
    """Top-1 on the validation images, if it was measured at this step."""


def not_torchvision(recipe: Recipe) -> str | None:
    """Why torchvision and timm have no such network, or None if they do."""
    model = recipe.model
    if model.name not in _TORCHVISION:
        return f"they have no {model.name}"
    if model.stem != "conv7":
        return f"their first layer is conv7, not {model.stem}"
    if model.padding != "symmetric":
        return "they pad symmetrically, and model.padding is 'same'"
    if model.blur:
        return "their layers of stride 2 do not blur what they take"
    if model.norm_epsilon != _TORCHVISION_EPSILON:
        return f"their batch norm adds {_TORCHVISION_EPSILON:g}, not {model.norm_epsilon:g}"
    return None


def config(about: About) -> dict[str, Any]:
    """The content of config.json."""
    recipe, data = about.recipe, about.recipe.data
    return {
        "architecture": recipe.model.name,
        "num_classes": len(about.classes),
        "global_pool": "avg",
        "pretrained_cfg": {
            "input_size": [3, data.evaluation_size, data.evaluation_size],
            "interpolation": "bilinear",
            "crop_pct": data.eval_share,
            "crop_mode": "center",
            "mean": list(data.mean),
            "std": list(data.std),
            "num_classes": len(about.classes),
            "label_names": list(about.classes),
            "first_conv": "conv1",
            "classifier": "fc",
        },
        "podium": {
            "version": podium.__version__,
            "padding": recipe.model.padding,
            "step": about.step,
            "accuracy": about.accuracy,
            "recipe": to_dict(dataclasses.replace(recipe, torus="auto")),
        },
    }


def card(about: About, format: str, use: str) -> str:
    """The content of README.md; `use` is code."""
    recipe, data = about.recipe, about.recipe.data
    size = data.evaluation_size
    measured = "" if about.accuracy is None else f" Top-1 accuracy on its validation images: {about.accuracy:.2%}."
    library = "timm" if format == "safetensors" and not_torchvision(recipe) is None else "podium"
    shown = ", ".join(about.classes[:20]) + (", …" if len(about.classes) > 20 else "")
    return f"""---
library_name: {library}
pipeline_tag: image-classification
tags: [image-classification, podium]
---
# {recipe.model.name}, {len(about.classes)} classes

Trained with Podium {podium.__version__}, recipe {recipe.name}, {about.step:,} steps of {recipe.batch_global}
images.{measured}

## Images

Cut the centre square, {data.eval_share:g} of the shorter side. Resize it to {size}×{size}
(bilinear, antialiased: Pillow's `BILINEAR`). RGB. Divide by 255, subtract {[round(v, 4) for v in data.mean]} and
divide by {[round(v, 4) for v in data.std]}.

## Use

```python
{use}
```

## Classes

{shown}
"""
