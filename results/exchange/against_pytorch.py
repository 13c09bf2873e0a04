"""Podium's ResNets beside PyTorch's, with the same random weights and images: logits of weights that are read, of
weights that are written, and of ONNX files in onnxruntime.

    python results/exchange/against_pytorch.py results/exchange/DATE-against-pytorch.json

Needs the extras bench and onnx. torchvision and timm are asked too where they are installed (beside a CPU build of
torch: pip install --no-deps torchvision==0.28.0 timm==1.0.31 huggingface_hub).
"""

import json
import sys
import tempfile
import types
from pathlib import Path

import jax
import numpy as np
import onnxruntime
import torch
from flax import nnx
from safetensors.torch import load_file, save_file
from torch import nn

from podium import models
from podium.exchange.export import COUNTERS, _counters
from podium.exchange.names import leaves_by_name, torch_tensors
from podium.exchange.onnx_graph import build_onnx
from podium.exchange.weights import choose_tensors, read_weights
from podium.host.versions import versions
from podium.recipe.reading import load_recipe
from podium.recipe.schema import Model

DEPTHS = {
    "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}  # fmt: skip
CLASSES, SIZE, IMAGES = 1000, 224, 2


class Block(nn.Module):
    def __init__(self, c_in, width, stride, deep):
        super().__init__()
        c_out = 4 * width if deep else width
        plan = [(1, 1, width), (3, stride, width), (1, 1, c_out)] if deep else [(3, stride, width), (3, 1, c_out)]
        self.count = len(plan)
        channels = c_in
        for k, (kernel, step, out) in enumerate(plan, 1):
            setattr(self, f"conv{k}", nn.Conv2d(channels, out, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{k}", nn.BatchNorm2d(out))
            channels = out
        self.downsample = None
        if stride != 1 or c_in != c_out:
            self.downsample = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = x
        for k in range(1, self.count + 1):
            y = getattr(self, f"bn{k}")(getattr(self, f"conv{k}")(y))
            y = torch.relu(y) if k < self.count else y
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class TorchResNet(nn.Module):
    """torchvision's ResNet, written anew with its names."""

    def __init__(self, name):
        super().__init__()
        deep = int(name.removeprefix("resnet")) >= 50
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.pool, channels = nn.MaxPool2d(3, 2, 1), 64
        for stage, blocks in enumerate(DEPTHS[name]):
            width, layers = 64 * 2**stage, []
            for block in range(blocks):
                layers.append(Block(channels, width, 2 if stage and not block else 1, deep))
                channels = 4 * width if deep else width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def random_network(name):
    torch.manual_seed(0)
    network = TorchResNet(name).eval()
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.3, 0.9)
            nn.init.normal_(part.bias, 0, 0.2)
            nn.init.normal_(part.running_mean, 0, 0.3)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return network


def others():
    """Other people's networks by name, as far as they are installed."""
    sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))
    found = {}
    try:
        import torchvision

        found["torchvision"] = lambda name: getattr(torchvision.models, name)(num_classes=CLASSES)
    except ImportError:
        pass
    try:
        import timm

        found["timm"] = lambda name: timm.create_model(name, num_classes=CLASSES)
    except ImportError:
        pass
    return found


def compare(name, folder):
    network, file = random_network(name), folder / f"{name}.safetensors"
    save_file(network.state_dict(), file)
    images = np.random.default_rng(1).normal(size=(IMAGES, 3, SIZE, SIZE)).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(images)).numpy()

    def off(found):
        return float(np.abs(np.asarray(found) - expected).max())

    model, classes = Model(norm_span=1, name=name, classes=CLASSES), tuple(map(str, range(CLASSES)))
    abstract = nnx.eval_shape(lambda: models.build_model(model, CLASSES, np.float32, rngs=nnx.Rngs(0)))
    graph, params, stats = nnx.split(abstract, nnx.Param, nnx.BatchStat)
    chosen = choose_tensors(read_weights(file), model, leaves_by_name(params, stats), classes=classes)
    params, stats = chosen.place(params), chosen.place(stats)
    ours = nnx.merge(graph, params, stats)
    ours.eval()
    result = {
        "logits_std": float(expected.std()),
        "read": off(jax.jit(lambda x: ours(x))(images.transpose(0, 2, 3, 1))),
    }

    tensors = torch_tensors(model, leaves_by_name(params, stats))
    written = folder / "written.safetensors"
    save_file({k: torch.from_numpy(np.array(v)) for k, v in {**tensors, **_counters(tensors, 0)}.items()}, written)
    for library, make in {"torch": TorchResNet, **others()}.items():
        theirs = make(name).eval()
        theirs.load_state_dict(load_file(written), strict=True)  # no key missing, none left over
        with torch.no_grad():
            result[f"written_{library}"] = off(theirs(torch.from_numpy(images)))
    result["keys"] = len(load_file(written))
    assert any(key.endswith(COUNTERS) for key in load_file(written))

    recipe = load_recipe("resnet50-256", [f"model.name={name}", f"model.classes={CLASSES}"])
    for folds in (False, True):
        built = build_onnx(recipe, tensors, input="normalised", folds=folds, about={})
        session = onnxruntime.InferenceSession(built.SerializeToString())
        result["onnx_folded" if folds else "onnx"] = off(session.run(None, {"images": images})[0])
    return result


def main():
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name in DEPTHS:
            found[name] = compare(name, Path(folder))
            print(name, found[name], flush=True)
    told = {
        "what": "largest difference of any logit from PyTorch's, random weights, two images of 224 px, 1000 classes",
        "command": "python results/exchange/against_pytorch.py",
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
        **{name: sys.modules[name].__version__ for name in others()},
        "versions": versions(),
        "networks": found,
    }
    Path(sys.argv[1]).write_text(json.dumps(told, indent=1) + "\n")
    worst = max(v for r in found.values() for k, v in r.items() if k not in ("logits_std", "keys"))
    sys.exit(f"a logit is {worst:.2g} off" if worst > 1e-4 else None)


main()
