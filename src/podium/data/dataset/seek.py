"""Which images get a seek index, with which the decoder reads little more of a file than its crop. `prepare` keeps it
beside the image, and the byte cache builds what is missing.
"""

from podium.data import decode
from podium.data.decode.buffers import ByteString

# Below this an index saves nothing: a 32-pixel image has four rows of blocks, and most crops of a 64-pixel one touch
# all of its rows; from about 128 × 128 pixels on, the codes outside a crop cost more than looking up where it begins.
PIXELS_LEAST = 128 * 128


def build_index(jpeg: ByteString, width: int, height: int) -> bytes | None:
    """The index, or None where it would not pay or the file is of a kind that has none. Reads every code of the file,
    and raises DecodeError where one is wrong."""
    # Other decoders have no use for it, and would decode the whole image to answer.
    if width * height < PIXELS_LEAST or decode.backend() != "native":
        return None
    return decode.build_index(jpeg)
