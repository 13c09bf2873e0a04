"""What can become of an image: the statuses that both decoders, native and Pillow, give, and the limits they
share. It mirrors `native/decode/podium_native.h`, and the tests hold the two together.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Uint8 = NDArray[np.uint8]
Int32 = NDArray[np.int32]


class Crops(NamedTuple):
    """What becomes of the images of a batch, in arrays that are known to fit each other."""

    boxes: Int32  # [n, 4]
    flips: Uint8  # [n]
    out: Uint8  # [n, size, size, 3]
    threads: int


MAX_PIXELS = 64 * 1024 * 1024
MAX_OUT_SIZE = 4096
MAX_BOX_REACH = 1 << 20


class Status(IntEnum):
    OK = 0
    NOT_JPEG = 1
    TRUNCATED = 2
    CORRUPT = 3
    TOO_LARGE = 4
    UNSUPPORTED = 5
    BAD_BOX = 6
    SIZE_MISMATCH = 7
    NO_MEMORY = 8
    CHANGED = 9  # never by a decoder


_MESSAGES = {
    Status.OK: "ok",
    Status.NOT_JPEG: "not a JPEG file",
    Status.TRUNCATED: "the JPEG file is cut off",
    Status.CORRUPT: "the JPEG data are corrupt",
    Status.TOO_LARGE: "more pixels or scans than are accepted",
    Status.UNSUPPORTED: "a kind of JPEG that libjpeg-turbo cannot decode",
    Status.BAD_BOX: "the crop box or output size is empty or too large",
    Status.SIZE_MISMATCH: "the file's size is not the size given",
    Status.NO_MEMORY: "out of memory",
    Status.CHANGED: "its bytes do not match their checksum",
}


def status_message(status: int) -> str:
    return _MESSAGES[Status(status)]


class DecodeError(Exception):
    """One image that cannot be decoded; `status` says why."""

    def __init__(self, status: int) -> None:
        self.status = Status(status)
        super().__init__(status_message(status))
