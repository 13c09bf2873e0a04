"""torchvision's ResNet, evaluated in plain NumPy from a dictionary of its tensors: written from its paper and its
documented names, and knowing nothing of Podium. Slow, so for small images."""

import numpy as np

BLOCKS = {
    "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3), "resnet8": (1, 1, 1),  # the last is Podium's own, with half the channels
}  # fmt: skip
DEEP = ("resnet50", "resnet101", "resnet152")


def random_tensors(name, classes=10, seed=0):
    """The tensors of a network, by torchvision's names, such that activations neither vanish nor explode."""
    rng, tensors = np.random.default_rng(seed), {}

    def conv(key, c_in, c_out, kernel):
        scale = np.sqrt(2 / (c_in * kernel * kernel))
        tensors[f"{key}.weight"] = (scale * rng.normal(size=(c_out, c_in, kernel, kernel))).astype(np.float32)

    def norm(key, channels):
        tensors[f"{key}.weight"] = rng.uniform(0.3, 0.9, channels).astype(np.float32)
        tensors[f"{key}.bias"] = rng.normal(0, 0.2, channels).astype(np.float32)
        tensors[f"{key}.running_mean"] = rng.normal(0, 0.3, channels).astype(np.float32)
        tensors[f"{key}.running_var"] = rng.uniform(0.5, 2.0, channels).astype(np.float32)

    start = 32 if name == "resnet8" else 64
    conv("conv1", 3, start, 7)
    norm("bn1", start)
    channels, deep = start, name in DEEP
    for stage, blocks in enumerate(BLOCKS[name]):
        width, out = start * 2**stage, start * 2**stage * (4 if deep else 1)
        for block in range(blocks):
            at = f"layer{stage + 1}.{block}"
            plan = (
                [(channels, width, 1), (width, width, 3), (width, out, 1)]
                if deep
                else [(channels, width, 3), (width, out, 3)]
            )
            for k, (c_in, c_out, kernel) in enumerate(plan, 1):
                conv(f"{at}.conv{k}", c_in, c_out, kernel)
                norm(f"{at}.bn{k}", c_out)
            if channels != out or (stage and block == 0):
                conv(f"{at}.downsample.0", channels, out, 1)
                norm(f"{at}.downsample.1", out)
            channels = out
    tensors["fc.weight"] = rng.normal(0, 0.05, (classes, channels)).astype(np.float32)
    tensors["fc.bias"] = rng.normal(0, 0.1, classes).astype(np.float32)
    return tensors


def logits(name, tensors, x):
    """[n, 3, rows, columns] normalised images → [n, classes]."""
    x = _relu(_norm(tensors, "bn1", _conv(x, tensors["conv1.weight"], 2)))
    x = _windows(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf), 3, 2).max((-2, -1))
    for stage, blocks in enumerate(BLOCKS[name]):
        for block in range(blocks):
            stride = 2 if stage and block == 0 else 1
            x = _block(tensors, f"layer{stage + 1}.{block}", x, stride, deep=name in DEEP)
    return x.mean((2, 3)) @ tensors["fc.weight"].T + tensors["fc.bias"]


def _block(tensors, at, x, stride, deep):
    y = x
    strides = (1, stride, 1) if deep else (stride, 1)
    for k, step in enumerate(strides, 1):
        y = _norm(tensors, f"{at}.bn{k}", _conv(y, tensors[f"{at}.conv{k}.weight"], step))
        y = _relu(y) if k < len(strides) else y
    if f"{at}.downsample.0.weight" in tensors:
        x = _norm(tensors, f"{at}.downsample.1", _conv(x, tensors[f"{at}.downsample.0.weight"], stride))
    return _relu(x + y)


def _conv(x, weight, stride):
    around = weight.shape[-1] // 2
    padded = np.pad(x, ((0, 0), (0, 0), (around, around), (around, around)))
    return np.einsum("nchwij,ocij->nohw", _windows(padded, weight.shape[-1], stride), weight, optimize=True)


def _windows(x, size, stride):
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))[:, :, ::stride, ::stride]


def _norm(tensors, key, x):
    scale, bias, mean, var = (
        tensors[f"{key}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) / np.sqrt(var + 1e-5) * scale + bias


def _relu(x):
    return np.maximum(x, 0)
