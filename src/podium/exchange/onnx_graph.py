"""A network as an ONNX graph, node by node: convolutions, batch norm (or folded into the convolution before it), sums,
pools and the classifier, for any batch size. Made from tensors with PyTorch's names, by hand: what is in the file is
what stands here. Needs the extra `onnx`.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from podium.errors import UserError
from podium.exchange.names import CLASSIFIER, Tensors
from podium.exchange.stem import unfold_stem
from podium.models.pooled import POOLED, Pooled, patch_filters
from podium.models.resnet import SHAPES
from podium.recipe.schema import Recipe

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:  # an extra
    onnx = None

OPSET, IR_VERSION = 17, 8
INPUT, OUTPUT = "images", "logits"
Input = Literal["pixels", "normalised"]
"""uint8 [batch, rows, columns, 3], or what torchvision's networks take: float32 [batch, 3, rows, columns]."""


def check_installed() -> None:
    if onnx is None:
        raise UserError("ONNX files need the extra onnx; install it: pip install 'podium[onnx]'")


@dataclass
class Graph:
    """Nodes in the order in which they run; each method adds some and returns the name of their result."""

    tensors: Tensors
    epsilon: float
    same_padding: bool
    folds: bool
    blurs: bool = False
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants[name] = value
        return name

    def conv_norm(self, x: str, conv: str, norm: str, *, stride: int = 1) -> str:
        kernel = self.tensors[f"{conv}.weight"]
        around = self.around(kernel.shape[-1])
        return self.convolved(x, kernel, (conv, norm), strides=[stride] * 2, **around)

    def convolved(self, x: str, kernel: np.ndarray, names: tuple[str, str], **attributes: Any) -> str:
        """A convolution and the norm behind it."""
        conv, norm = names
        if not self.folds:
            y = self.node("Conv", x, self.constant(f"{conv}.weight", kernel), **attributes)
            return self.norm(y, norm)
        scale, shift = self.scale_and_shift(norm)
        folded = self.constant(f"{conv}.weight", kernel * scale[:, None, None, None])
        return self.node("Conv", x, folded, self.constant(f"{conv}.bias", shift), **attributes)

    def norm(self, x: str, norm: str) -> str:
        names = [f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
        constants = [self.constant(name, self.tensors[name]) for name in names]
        return self.node("BatchNormalization", x, *constants, epsilon=self.epsilon)

    def scale_and_shift(self, norm: str) -> tuple[np.ndarray, np.ndarray]:
        scale, bias, mean, var = (
            self.tensors[f"{norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        scale = scale / np.sqrt(var + self.epsilon)
        return scale.astype(np.float32), (bias - mean * scale).astype(np.float32)

    def blurred(self, x: str, channels: int) -> str:
        """3×3 neighbours weighed 1:2:1 both ways, zeros around."""
        kernel = np.outer([1, 2, 1], [1, 2, 1]).astype(np.float32) / 16
        weight = self.constant(f"blur{channels}.weight", np.tile(kernel, (channels, 1, 1, 1)))
        return self.node("Conv", x, weight, group=channels, pads=[1] * 4)

    def around(self, kernel: int) -> dict[str, Any]:
        """How a layer is padded."""
        return {"auto_pad": "SAME_UPPER"} if self.same_padding else {"pads": [kernel // 2] * 4}


def build_onnx(recipe: Recipe, tensors: Tensors, *, input: Input, folds: bool, about: dict[str, str]) -> Any:
    """The model; `about` is written into its metadata."""
    check_installed()
    model, data = recipe.model, recipe.data
    graph = Graph(tensors, model.norm_epsilon, model.padding == "same", folds, model.blur)
    x = _normalised(graph, recipe) if input == "pixels" else INPUT
    if model.name in POOLED:
        x = _pooled(graph, x, POOLED[model.name])
    elif model.name in SHAPES:
        x = _resnet(graph, x, recipe)
    else:
        raise UserError(f"model.name={model.name!r} cannot be written as ONNX; use --format stablehlo")
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    head = [graph.constant(f"{CLASSIFIER}.{part}", tensors[f"{CLASSIFIER}.{part}"]) for part in ("weight", "bias")]
    graph.node("Gemm", x, *head, transB=1, output=OUTPUT)
    size = data.evaluation_size
    images: Any = (TensorProto.UINT8, ["batch", size, size, 3])
    if input == "normalised":
        images = (TensorProto.FLOAT, ["batch", 3, size, size])
    built = helper.make_model(
        helper.make_graph(
            graph.nodes,
            model.name,
            [helper.make_tensor_value_info(INPUT, *images)],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", model.classes])],
            [
                numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name)
                for name, value in graph.constants.items()
            ],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="podium",
        ir_version=IR_VERSION,
    )
    helper.set_model_props(
        built, {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}
    )
    onnx.checker.check_model(built, full_check=True)
    return built


def _normalised(graph: Graph, recipe: Recipe) -> str:
    x = graph.node("Transpose", graph.node("Cast", INPUT, to=TensorProto.FLOAT), perm=[0, 3, 1, 2])
    mean, std = (np.array(v, np.float32).reshape(1, 3, 1, 1) for v in (recipe.data.mean, recipe.data.std))
    x = graph.node("Sub", x, graph.constant("pixel_mean", 255 * mean))
    return graph.node("Div", x, graph.constant("pixel_std", 255 * std))


def _resnet(graph: Graph, x: str, recipe: Recipe) -> str:
    model, shape = recipe.model, SHAPES[recipe.model.name]
    x = graph.node("Relu", _stem(graph, x, model.stem))
    if model.stem in ("conv7", "space_to_depth"):
        x = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], **graph.around(3))
    for stage, blocks in enumerate(shape.blocks):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _block(graph, x, f"layer{stage + 1}.{block}", stride=stride, bottleneck=shape.bottleneck)
    return x


def _stem(graph: Graph, x: str, stem: str) -> str:
    kernel = graph.tensors["conv1.weight"]
    if stem in ("conv7", "conv3"):
        return graph.conv_norm(x, "conv1", "bn1", stride=2 if stem == "conv7" else 1)
    folded = kernel.shape[-1]  # one on folded pixels is twice as large on pixels, and so is its padding
    before = (folded - 1) // 2 if graph.same_padding else folded // 2
    pads = [2 * before] * 2 + [2 * (folded - 1 - before)] * 2
    return graph.convolved(x, unfold_stem(kernel), ("conv1", "bn1"), strides=[2, 2], pads=pads)


def _block(graph: Graph, x: str, at: str, *, stride: int, bottleneck: bool) -> str:
    strides = (1, stride, 1) if bottleneck else (stride, 1)
    y = x
    blurs = graph.blurs and stride > 1
    for number, step in enumerate(strides, 1):
        if blurs and step > 1:
            y = graph.blurred(y, graph.tensors[f"{at}.conv{number}.weight"].shape[1])
        y = graph.conv_norm(y, f"{at}.conv{number}", f"{at}.bn{number}", stride=step)
        if number < len(strides):
            y = graph.node("Relu", y)
    if f"{at}.downsample.0.weight" in graph.tensors:
        x = graph.blurred(x, graph.tensors[f"{at}.downsample.0.weight"].shape[1]) if blurs else x
        x = graph.conv_norm(x, f"{at}.downsample.0", f"{at}.downsample.1", stride=stride)
    return graph.node("Relu", graph.node("Add", y, x))


def _pooled(graph: Graph, x: str, shape: Pooled) -> str:
    filters = graph.constant("patches.weight", patch_filters().transpose(3, 2, 0, 1))
    x = graph.node("Relu", graph.node("Conv", x, filters, graph.constant("patches.bias", graph.tensors["patch_bias"])))
    for stage in range(len(shape.widths)):
        kernel = graph.constant(f"stages.{stage}.widen.weight", graph.tensors[f"stages.{stage}.widen.weight"])
        wide = graph.node("MaxPool", graph.node("Conv", x, kernel, pads=[1] * 4), kernel_shape=[2, 2], strides=[2, 2])
        x = graph.node("Relu", graph.norm(wide, f"stages.{stage}.widen_norm"))  # behind a maximum: it cannot be folded
        fine = graph.conv_norm(x, f"stages.{stage}.refine", f"stages.{stage}.refine_norm")
        fine = graph.node("Relu", fine)
        x = graph.node("Add", x, fine) if shape.residual else fine
    return x
