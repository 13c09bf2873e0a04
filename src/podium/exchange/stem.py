"""The first convolution with its pixels folded, in pairs of rows and columns, and as everybody else has it. The 4×4
convolution of stride 1 on folded pixels is an 8×8 one of stride 2 whose first row and column reach beyond torchvision's
7×7: so a 7×7 kernel can be folded, but one that was trained folded is no 7×7.
"""

import numpy as np


def fold_stem(kernel: np.ndarray, stem: str) -> np.ndarray:
    """[out, 3, 7, 7] → [out, 12, 4, 4] where the stem wants that; anything else is returned as it is."""
    if stem != "space_to_depth" or kernel.shape[1:] != (3, 7, 7):
        return kernel
    padded = np.pad(kernel, ((0, 0), (0, 0), (1, 0), (1, 0)))  # 8×8, reaching one further to the start
    pairs = padded.reshape(len(kernel), 3, 4, 2, 4, 2)
    return pairs.transpose(0, 3, 5, 1, 2, 4).reshape(len(kernel), 12, 4, 4)


def unfold_stem(kernel: np.ndarray) -> np.ndarray:
    """[out, 12, k, k] on folded pixels → [out, 3, 2k, 2k] of stride 2 on pixels."""
    out, _, size, _ = kernel.shape
    pairs = kernel.reshape(out, 2, 2, 3, size, size).transpose(0, 3, 4, 1, 5, 2)
    return pairs.reshape(out, 3, 2 * size, 2 * size)
