"""Weights in and models out: safetensors with the names of torchvision and timm, ONNX, StableHLO. It knows networks and
files, not runs: `train` gives it the weights of one."""
