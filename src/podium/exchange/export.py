"""A trained network as files for others: written beside OUT, read back as those others would, compared with the network
itself on real images, and only then given its name.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from safetensors.numpy import load_file, save_file

from podium.errors import UserError
from podium.exchange import card, onnx_graph
from podium.exchange.names import Tensors, leaves_by_name, torch_tensors
from podium.exchange.onnx_graph import Input
from podium.exchange.stablehlo import build_stablehlo, run_stablehlo
from podium.exchange.weights import CONFIG_FILE, COUNTERS, WEIGHTS_FILE, Weights, choose_tensors
from podium.host.files import reporting
from podium.step.network import Network

Format = Literal["safetensors", "onnx", "stablehlo"]
ONNX_FILE, STABLEHLO_FILE = "model.onnx", "model.stablehlo"
TOLERANCE = 1e-4
"""Largest difference of a logit, where logits are at most 1; else as a share of the largest."""


@dataclass(frozen=True)
class Options:
    format: Format = "safetensors"
    input: Input = "pixels"
    folds: bool = False


@dataclass(frozen=True)
class Exported:
    files: tuple[str, ...]
    difference: float
    """The largest that was seen."""
    images: int


def export(
    network: Network,
    params: Any,
    stats: Any,
    *,
    about: card.About,
    options: Options,
    out: Path,
    images: np.ndarray,
) -> Exported:
    """Writes the folder `out`. `images`, uint8 [n, size, size, 3], are what the files are tried on."""
    tensors = torch_tensors(network.recipe.model, leaves_by_name(params, stats))
    expected = _logits(network, params, stats, images=images)
    with reporting(out, "choose another folder"):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} is already there; choose a new folder, or remove it")
        unfinished = out.with_name(f".{out.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            _write(unfinished, network, tensors, about=about, options=options)
            found = _read_back(unfinished, network, about=about, options=options, images=images)
            difference = _difference(found, expected, options)
            unfinished.replace(out)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return Exported(tuple(sorted(str(file) for file in out.iterdir())), difference, len(images))


def _logits(network: Network, params: Any, stats: Any, *, images: np.ndarray) -> np.ndarray:
    forward = jax.jit(lambda params, stats, images: network.forward(params, stats, {"image": images}, train=False)[0])
    return np.asarray(forward(params, stats, images))


def _write(folder: Path, network: Network, tensors: Tensors, *, about: card.About, options: Options) -> None:
    (folder / CONFIG_FILE).write_text(json.dumps(card.config(about), indent=1))
    (folder / "README.md").write_text(card.card(about, options.format, _use(about, options)))
    if options.format != "onnx":
        counters = _counters(tensors, about.step) if options.format == "safetensors" else {}
        save_file({**tensors, **counters}, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    if options.format == "stablehlo":
        (folder / STABLEHLO_FILE).write_bytes(build_stablehlo(network, tensors))
    if options.format == "onnx":
        described = {"classes": json.dumps(about.classes), "config": json.dumps(card.config(about)["pretrained_cfg"])}
        model = onnx_graph.build_onnx(
            network.recipe, tensors, input=options.input, folds=options.folds, about=described
        )
        (folder / ONNX_FILE).write_bytes(model.SerializeToString())


def _counters(tensors: Tensors, step: int) -> Tensors:
    """What PyTorch's batch norm also has: the number of batches it has seen."""
    norms = [name.removesuffix("running_mean") for name in tensors if name.endswith("running_mean")]
    return {f"{norm}{COUNTERS}": np.array(step, np.int64) for norm in norms}


def _read_back(
    folder: Path, network: Network, *, about: card.About, options: Options, images: np.ndarray
) -> np.ndarray:
    """Logits of `images` from the files alone."""
    if options.format == "onnx":
        return _run_onnx(folder / ONNX_FILE, network, options, images=images)
    tensors = {name: value for name, value in load_file(folder / WEIGHTS_FILE).items() if not name.endswith(COUNTERS)}
    if options.format == "stablehlo":
        return run_stablehlo((folder / STABLEHLO_FILE).read_bytes(), tensors, images)
    shapes = jax.eval_shape(network.initial)
    weights = Weights(str(folder), "", tensors, about.classes)
    chosen = choose_tensors(weights, network.recipe.model, leaves_by_name(*shapes), classes=about.classes)
    params, stats = (chosen.place(tree) for tree in shapes)
    return _logits(network, params, stats, images=images)


def _run_onnx(file: Path, network: Network, options: Options, *, images: np.ndarray) -> np.ndarray:
    import onnxruntime  # an extra

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    data = network.recipe.data
    if options.input == "normalised":
        images = (images / 255 - np.array(data.mean)) / np.array(data.std)
        images = images.transpose(0, 3, 1, 2).astype(np.float32)
    return session.run([onnx_graph.OUTPUT], {onnx_graph.INPUT: images})[0]


def _difference(found: np.ndarray, expected: np.ndarray, options: Options) -> float:
    difference = float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))
    if not difference <= TOLERANCE:
        raise RuntimeError(
            f"the {options.format} file gives logits that are {difference:.2g} off, more than {TOLERANCE:g}; "
            "nothing was kept. This is a bug of Podium: please report it"
        )
    return difference


def _use(about: card.About, options: Options) -> str:
    """Code that takes images to logits."""
    name, size = about.recipe.model.name, about.recipe.data.evaluation_size
    images = f"uint8 [n, {size}, {size}, 3]"
    if options.input == "normalised":
        images = f"float32 [n, 3, {size}, {size}], normalised"
    if options.format == "onnx":
        return (
            f'import onnxruntime\n\nsession = onnxruntime.InferenceSession("{ONNX_FILE}")\n'
            f'logits = session.run(None, {{"{onnx_graph.INPUT}": images}})[0]  # images: {images}'
        )
    if options.format == "stablehlo":
        return (
            "import jax.export\nfrom safetensors.numpy import load_file\n\n"
            f'exported = jax.export.deserialize(open("{STABLEHLO_FILE}", "rb").read())\n'
            f'logits = exported.call(load_file("{WEIGHTS_FILE}"), images)  # images: {images}'
        )
    if why := card.not_torchvision(about.recipe):
        return f"# torchvision and timm cannot load it: {why}\n# podium train --weights FOLDER --recipe …"
    return (
        f"from safetensors.torch import load_file\nfrom torchvision.models import {name}\n\n"
        f"model = {name}(num_classes={len(about.classes)})\n"
        f'model.load_state_dict(load_file("{WEIGHTS_FILE}"))\nmodel.eval()'
    )
