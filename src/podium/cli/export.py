"""What `podium export` does."""

from dataclasses import asdict, replace
from typing import Any

from rich.console import Console

from podium.cli.arguments.export import Export
from podium.cli.start_jax import start_jax
from podium.exchange import card, onnx_graph
from podium.exchange import export as exporting
from podium.report.history import read_history
from podium.step.network import build_network
from podium.train.trained_model import open_run

_IMAGES = 8  # that a file is checked on


def export(command: Export) -> dict[str, Any]:
    if command.format == "onnx":
        onnx_graph.check_installed()
    start_jax()
    trained = open_run(command.run, raw_weights=command.raw_weights)
    recipe = replace(trained.recipe, precision="fp32")
    about = card.About(
        run=command.run.name,
        step=trained.steps,
        recipe=replace(trained.info.recipe, model=recipe.model),
        classes=trained.info.classes,
        accuracy=read_history(command.run).accuracy_at(trained.steps, raw_weights=command.raw_weights),
    )
    exported = exporting.export(
        build_network(recipe, trained.mesh),
        trained.state.params,
        trained.state.stats,
        about=about,
        options=exporting.Options(command.format, command.input, command.fold_norms),
        out=command.out,
        images=trained.validation_pixels(_IMAGES, command.data),
    )
    console = Console(stderr=command.json, highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"{command.out}: {command.format}, checked on {exported.images} validation images "
        f"(logits differ by at most {exported.difference:.1g})"
    )
    if command.format == "safetensors":
        why = card.not_torchvision(about.recipe)
        console.print(f"torchvision and timm cannot load it: {why}" if why else "torchvision and timm load it strictly")
    return {"out": str(command.out), "format": command.format, **asdict(exported)}
