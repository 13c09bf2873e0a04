"""CRC-32C (Castagnoli), which guards TFRecords and TensorBoard's events, in NumPy. A CRC is linear over GF(2): a
message's CRC is the XOR of what each byte contributes at its place, so whole blocks are looked up at once, and Python
loops over blocks, not bytes."""

from functools import cache

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected
_BLOCK = 2048  # bytes


def masked_crc32c(message: np.ndarray) -> int:
    """The checksum as TFRecord stores it: rotated and offset, so that data which holds CRCs still has a good CRC."""
    crc = crc32c(message)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(message: np.ndarray) -> int:
    """The checksum of uint8 [n]."""
    table = _table()
    if len(message) < 4:
        crc = 0xFFFFFFFF
        for byte in message.tolist():
            crc = crc >> 8 ^ int(table[-1, (crc ^ byte) & 0xFF])
        return crc ^ 0xFFFFFFFF
    # The initial all-ones state is the same as inverting the first four bytes, and then zeros in front change
    # nothing.
    blocks = np.zeros((-(-len(message) // _BLOCK), _BLOCK), np.uint8)
    padded = blocks.reshape(-1)
    padded[-len(message) :] = message
    padded[-len(message) :][:4] ^= 0xFF
    crc = 0
    for block in np.bitwise_xor.reduce(
        np.take(table.reshape(-1), blocks + np.arange(0, 256 * _BLOCK, 256)), axis=1
    ).tolist():
        # After a block of zeros, a state is what its own four bytes would contribute in front of that block.
        for place, byte in enumerate(crc.to_bytes(4, "little")):
            block ^= int(table[place, byte])
        crc = block
    return crc ^ 0xFFFFFFFF


@cache
def _table() -> np.ndarray:
    """uint32 [_BLOCK, 256]: what a byte contributes to the CRC of a block, by its place in the block."""
    state = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        state = np.where(state & 1, state >> 1 ^ np.uint32(_POLYNOMIAL), state >> 1)
    places = [last := state]
    for _ in range(_BLOCK - 1):
        places.append(places[-1] >> 8 ^ last[places[-1] & 0xFF])
    return np.stack(places[::-1])
