"""One image file: what its header says, whether it is whole, and how to make a JPEG of it. `prepare` asks it
about every image of a source; the decoder that feeds training is another module (`decode`) and never
re-encodes."""

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from podium.data.decode import DecodeError

PIXELS_MAX = 64 * 2**20  # 64 Mpx: 192 MiB as RGB; the largest photograph in ImageNet has 25 Mpx
_QUALITY = 97  # of re-encoded images; with 4:4:4 chroma the loss stays below what a resize does

# Start-of-frame markers: https://www.w3.org/Graphics/JPEG/itu-t81.pdf, table B.1
_FRAMES = {0xC0 + i for i in range(16)} - {0xC4, 0xC8, 0xCC}
_BASELINE_OR_PROGRESSIVE = {0xC0, 0xC1, 0xC2}
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD8)}
_END = b"\xff\xd9"

# Pillow would also open PostScript, by running Ghostscript on it.
_ORIENTATION = 0x0112
_EXIF_WITHIN = 64 * 1024  # bytes of a file; it stands in the first segments
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_READABLE = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF")


class BadImage(Exception):
    """The reason why an image cannot be used, in a few words."""


@dataclass(frozen=True)
class JpegHeader:
    width: int
    height: int
    components: int
    bits: int
    frame: int
    """The start-of-frame marker: 0xC0 baseline, 0xC1 extended, 0xC2 progressive; others are rarely
    readable."""

    @property
    def trainable(self) -> bool:
        """Grey or colour, 8 bits, Huffman coded: what every JPEG decoder reads."""
        return self.frame in _BASELINE_OR_PROGRESSIVE and self.bits == 8 and self.components in (1, 3)


def jpeg_header(image: bytes) -> JpegHeader:
    """Walks the markers up to the first scan; after it comes an end marker, or the file is truncated."""
    if image[:2] != b"\xff\xd8":
        raise BadImage("no JPEG start marker")
    header, at, end = None, 2, len(image)
    while at + 4 <= end:
        if image[at] != 0xFF:
            raise BadImage(f"no JPEG marker at byte {at}")
        marker = image[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if marker in _WITHOUT_LENGTH:
            at += 2
            continue
        if marker == 0xD9:
            raise BadImage("the JPEG ends before its first scan")
        segment_bytes = image[at + 2] << 8 | image[at + 3]
        if marker in _FRAMES:
            if segment_bytes < 8 or at + 10 > end:
                raise BadImage("the JPEG frame header is cut short")
            bits, height, width, components = struct.unpack_from(">BHHB", image, at + 4)
            header = JpegHeader(width, height, components, bits, marker)
            _check_size(width, height)
        elif marker == 0xDA:
            if header is None:
                raise BadImage("a JPEG scan comes before the frame header")
            if image.rfind(_END, at) < 0:
                raise BadImage("truncated: the JPEG has no end marker")
            return header
        if segment_bytes < 2:
            raise BadImage(f"JPEG segment of {segment_bytes} bytes at byte {at}")
        at += 2 + segment_bytes
    raise BadImage("truncated: the JPEG ends inside its header")


class Trainable(NamedTuple):
    jpeg: bytes
    width: int
    height: int
    reencoded: bool


def trainable_jpeg(image: bytes, decode: Callable[[bytes], object] | None = None) -> Trainable:
    """The very same bytes if every decoder reads them, else a re-encoding.

    `decode`, where given, decodes the whole of an original; its DecodeError becomes the reason.
    """
    if not image:
        raise BadImage("empty file")
    kind = "a file of a kind"
    if image[:2] == b"\xff\xd8":
        header = jpeg_header(image)
        if header.trainable and not _is_turned(image):
            if decode is not None:
                try:
                    decode(image)
                except DecodeError as error:
                    raise BadImage(f"does not decode: {error}") from error
            return Trainable(image, header.width, header.height, False)
        kind = f"a JPEG of {header.bits} bits, {header.components} components, frame type 0x{header.frame:X},"
        if header.bits == 12:
            return Trainable(_saved(_of_twelve_bits(image)), header.width, header.height, True)
    jpeg, (width, height) = _reencode(image, kind)
    return Trainable(jpeg, width, height, True)


def _reencode(image: bytes, kind: str) -> tuple[bytes, tuple[int, int]]:
    try:
        picture = Image.open(io.BytesIO(image), formats=_readable(image))
        _check_size(*picture.size)
        upright = ImageOps.exif_transpose(picture)
        return _saved(_eight_bits(upright)), upright.size
    except BadImage:
        raise
    except UnidentifiedImageError as error:
        raise BadImage(f"{kind} that Pillow cannot read") from error
    except Exception as error:  # Pillow's plugins raise OSError, SyntaxError, ValueError, struct.error, …
        raise BadImage(f"not readable: {error}") from error


def _is_turned(jpeg: bytes) -> bool:
    """Whether a camera has noted that it was held on its side or upside down: the picture is then stored as it lay."""
    if b"Exif" not in jpeg[:_EXIF_WITHIN]:
        return False
    try:
        return Image.open(io.BytesIO(jpeg), formats=("JPEG",)).getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # a damaged note turns nothing; whether the picture is whole is found elsewhere
        return False


def _readable(image: bytes) -> tuple[str, ...]:
    """The formats that Pillow may open; HEIC, which most phones take, needs an extra."""
    if image[4:8] != b"ftyp" or image[8:12] not in _HEIF_BRANDS:
        return _READABLE
    try:
        import pillow_heif
    except ImportError:
        raise BadImage("HEIC; pip install 'podium[heic]' to have it read") from None
    pillow_heif.register_heif_opener()
    return ("HEIF",)


def _saved(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=_QUALITY, subsampling="4:4:4")
    return out.getvalue()


def _of_twelve_bits(image: bytes) -> Image.Image:
    """Neither Pillow nor most builds of libjpeg read these; so rare that the library is an extra."""
    try:
        import imagecodecs
    except ImportError:
        raise BadImage("a JPEG of 12 bits: make install EXTRAS=formats to have it re-encoded") from None
    try:
        pixels = imagecodecs.jpeg_decode(image)
    except Exception as error:
        raise BadImage(f"a JPEG of 12 bits that does not decode: {error}") from error
    if pixels.dtype != np.uint16 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise BadImage(f"a JPEG of 12 bits with {pixels.shape[2:]} components, neither grey nor colour")
    return Image.fromarray((pixels >> 4).clip(0, 255).astype(np.uint8))


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Grey stays grey. Sixteen-bit greys are scaled: Pillow's own conversion would clip them to white."""
    if picture.mode.startswith("I"):
        return Image.fromarray((np.asarray(picture).astype(np.uint32) >> 8).clip(0, 255).astype(np.uint8))
    if picture.mode in ("1", "L", "LA"):
        return picture.convert("L")
    return picture.convert("RGB")


def _check_size(width: int, height: int) -> None:
    if width <= 0 or height <= 0:
        raise BadImage(f"{width}×{height} pixels")
    if width * height > PIXELS_MAX:
        raise BadImage(f"{width}×{height} pixels is over the limit of {PIXELS_MAX // 2**20} Mpx")
