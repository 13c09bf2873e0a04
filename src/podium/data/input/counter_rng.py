"""Randomness with no state: a hash of (seed, epoch, index, …) gives a number, and a keyed permutation gives any
element of a shuffle without making the shuffle. Both are vectorised NumPy over uint64, so one batch costs
microseconds, and threads, hosts and restarts cannot change what is drawn. Not for cryptography.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _1, _63 = map(np.uint64, (30, 27, 31, 1, 63))


def mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's output function (Steele et al. 2014), a bijection on uint64. `x` is a uint64 array, not a scalar:
    NumPy warns of scalars that wrap around."""
    x = x + _GOLDEN
    x ^= x >> _30
    x *= _FIRST
    x ^= x >> _27
    x *= _SECOND
    x ^= x >> _31
    return x


def key(*parts: "int | np.ndarray") -> np.ndarray:
    """One uint64 per element from broadcast integer parts; the order of the parts matters."""
    shape = np.broadcast_shapes(*(np.shape(part) for part in parts))
    h = np.zeros(1, np.uint64)  # grows when a part has more elements: the seed is mixed once, not for each image
    for part in parts:
        h = mix(h ^ np.asarray(part).astype(np.uint64))
    return np.broadcast_to(h[0] if h.size == 1 else h, shape)


def uniform(keys: np.ndarray, first: int, last: int) -> np.ndarray:
    """[..., last − first] floats in [0, 1) with 53 random bits each: the key's draws first, first + 1, …"""
    counters = np.arange(first, last, dtype=np.uint64)
    return (mix(keys[..., None] ^ mix(counters)) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permute(index: np.ndarray, size: np.ndarray, keys: np.ndarray, *, version: str = "v2") -> np.ndarray:
    """Where a keyed shuffle of range(size) puts `index`; elementwise, for arrays of one shape, sizes at least 1.

    A Feistel network is a bijection on a somewhat larger range; indices that land at or past `size` are walked on along
    their cycle until they come back below it: still a bijection.
    """
    index, size, keys = (np.asarray(a).astype(np.uint64) for a in (index, size, keys))
    feistel = _feistel_v1 if version == "v1" else _feistel
    result = feistel(index, size, keys)
    outside = np.flatnonzero(result >= size)
    while outside.size:
        result[outside] = feistel(result[outside], size[outside], keys[outside])
        outside = outside[result[outside] >= size[outside]]
    return result.astype(np.int64)


def _feistel(x: np.ndarray, size: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """An index is a row and a column of a square that is as small as can be; rounds turn rows by an amount that depends
    on the column, then columns by rows. Four rounds make a strong permutation of many indices (Luby–Rackoff), but of a
    few they do not reach all permutations alike; sixteen do. Rounds of some sizes are all even permutations: so half
    of the keys swap 0 and 1 first."""
    rows = np.ceil(np.sqrt(size.astype(np.float64))).astype(np.uint64)
    columns = (size + rows - _1) // rows
    x = x ^ ((x < 2) & (size > 1) & (keys >> _63).astype(np.bool_))
    row, column = np.divmod(x, columns)
    keys = keys.copy()
    for _ in range(8):
        row = (row + (mix(keys ^ column) >> _1)) % rows  # shifted, so that the sum does not wrap
        keys += _GOLDEN
        column = (column + (mix(keys ^ row) >> _1)) % columns
        keys += _GOLDEN
    return row * columns + column


def _feistel_v1(x: np.ndarray, size: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """That of Podium 0.1, on the next power of four: its runs keep their order."""
    half_bits = np.maximum(1, (np.ceil(np.log2(np.maximum(size, 2).astype(np.float64))).astype(np.uint64) + 1) // 2)
    low = (_1 << half_bits) - _1
    left, right = x >> half_bits, x & low
    for turn in range(4):
        left, right = right, left ^ (mix(keys ^ mix(right ^ (np.uint64(turn) << np.uint64(60)))) & low)
    return (left << half_bits) | right
