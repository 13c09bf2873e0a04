"""The same work with Pillow, for machines where the native library was not built: same boxes, same
reflection, same statuses as far as Pillow can tell them (it reports neither bad Huffman codes inside a
complete file nor too many scans). Resized pixels differ from the native ones by at most a level, from
rounding. Threads help: Pillow releases the GIL.
"""

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from podium.data.decode.buffers import Buffers
from podium.data.decode.status import MAX_BOX_REACH, MAX_PIXELS, Crops, DecodeError, Int32, Status, Uint8


def jpeg_size(image: Uint8) -> tuple[int, int]:
    return _open(image).size


def decode_pixels(image: Uint8) -> Uint8:
    opened = _open(image)
    try:
        return np.array(opened.convert("RGB"))
    except MemoryError:
        raise DecodeError(Status.NO_MEMORY) from None
    except Exception as error:  # whatever a broken file provokes in Pillow's parsers
        raise DecodeError(Status.TRUNCATED if "truncated" in str(error) else Status.CORRUPT) from error


def build_index(image: Uint8) -> None:
    """None: Pillow decodes whole images. Raises DecodeError for a broken one, as the native twin does."""
    decode_pixels(image)


def decode_batch(images: Buffers, crops: Crops, indexes: Buffers | None, *, stale: Uint8 | None) -> Int32:
    views = images.views()
    if stale is not None:
        stale[:] = 0  # an index that is not read cannot be seen to be wrong

    def pixels(i: int) -> Uint8:
        _check_box(crops.boxes[i], *jpeg_size(views[i]))
        return decode_pixels(views[i])

    return _fill(pixels, crops)


def resize_batch(images: Buffers, sizes_wh: Int32, crops: Crops) -> Int32:
    views = images.views()

    def pixels(i: int) -> Uint8:
        width, height = sizes_wh[i].tolist()
        _check_box(crops.boxes[i], width, height)
        return views[i].reshape(height, width, 3)

    return _fill(pixels, crops)


def _open(image: Uint8) -> Image.Image:
    data = image.tobytes()
    if data[:3] != b"\xff\xd8\xff":
        raise DecodeError(Status.NOT_JPEG)
    try:
        opened = Image.open(io.BytesIO(data), formats=["JPEG"])
    except Image.DecompressionBombError:
        raise DecodeError(Status.TOO_LARGE) from None
    except Exception as error:
        raise DecodeError(Status.CORRUPT) from error
    if opened.width * opened.height > MAX_PIXELS:
        raise DecodeError(Status.TOO_LARGE)
    # Entropy-coded data hold neither marker: an end after the last start of scan means a complete file.
    if data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda"):
        raise DecodeError(Status.TRUNCATED)
    return opened


def _check_box(box: Int32, width: int, height: int) -> None:
    x, y, w, h = map(int, box)
    reach = max(abs(x), abs(y), w, h)
    if min(w, h, width, height) < 1 or reach > MAX_BOX_REACH or w * h > MAX_PIXELS:
        raise DecodeError(Status.BAD_BOX)


def _fill(pixels: Callable[[int], Uint8], crops: Crops) -> Int32:
    boxes, flips, out, threads = crops

    def work(i: int) -> int:
        try:
            square = _cut(pixels(i), boxes[i], out.shape[1])
        except DecodeError as error:
            out[i] = 0
            return error.status
        out[i] = square[:, ::-1] if flips[i] else square
        return Status.OK

    with ThreadPoolExecutor(max(threads, 1)) as pool:
        return np.fromiter(pool.map(work, range(len(boxes))), np.int32, len(boxes))


def _cut(pixels: Uint8, box: Int32, size: int) -> Uint8:
    x, y, w, h = map(int, box)
    height, width, _ = pixels.shape
    if x < 0 or y < 0 or x + w > width or y + h > height:
        crop = pixels[_reflected(y, h, height)][:, _reflected(x, w, width)]
    else:
        crop = pixels[y : y + h, x : x + w]
    if (h, w) == (size, size):
        return crop
    return np.asarray(Image.fromarray(crop).resize((size, size), Image.Resampling.BILINEAR))


def _reflected(begin: int, size: int, length: int) -> NDArray[np.intp]:
    """The indices begin … begin + size in an axis continued as by numpy.pad(mode="reflect")."""
    period = max(2 * (length - 1), 1)
    at: NDArray[Any] = np.arange(begin, begin + size) % period
    return np.minimum(at, period - at) if length > 1 else np.zeros(size, np.intp)
