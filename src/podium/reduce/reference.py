"""The same collectives in a few lines of NumPy, over a list with one block per device: what every reduction must
equal. Sums in float64; it says nothing of links or order, which is the point."""

import numpy as np

Blocks = list[np.ndarray]


def all_reduce(blocks: Blocks) -> Blocks:
    return [np.stack(blocks).sum(0, np.float64)] * len(blocks)


def reduce_scatter(blocks: Blocks) -> Blocks:
    total, devices = np.stack(blocks).sum(0, np.float64), len(blocks)
    return np.split(np.pad(total, (0, -total.size % devices)), devices)


def all_gather(shards: Blocks, size: int) -> Blocks:
    return [np.concatenate(shards)[:size]] * len(shards)


def sum_over_hosts(blocks: Blocks, lanes: int) -> Blocks:
    """Devices lane by lane: those of lane 0 on all hosts first."""
    by_lane = np.stack(blocks).reshape(lanes, -1, blocks[0].size)
    totals = by_lane.sum(1, np.float64)
    return [totals[lane] for lane in range(lanes) for _ in range(len(blocks) // lanes)]
