"""Files changed at random, by the kinds of damage that find mistakes in readers: flipped bits, cut ends, pieces moved,
repeated or left out, and numbers at the edges of their range. Half of the mutants of a TFRecord get good checksums
again, or nothing behind the checksums would ever be tried."""

import random
import struct
from pathlib import Path

from tensorboardX.record_writer import masked_crc32c
from tests.support.hostile_tars import BLOCK
from tests.support.made_sources import folder_files, made, parquet_bytes, tar_bytes, tfrecord_files

from podium.data.dataset.manifest import Shard, write_manifest
from podium.data.dataset.shards import ImageSet, write_split
from podium.data.prepare.sources import scan_archive
from podium.data.prepare.sources.find import SourceFile

KINDS = ("tar", "tfrecord", "parquet", "arrow")
_EDGES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 512]


def sound(kind: str, scratch: Path) -> bytes:
    """A good file of the kind."""
    if kind == "tar":
        return tar_bytes(folder_files())
    if kind == "tfrecord":
        return next(iter(tfrecord_files(scratch).values()))
    if kind == "parquet":
        return parquet_bytes(list(made()))
    rows = ((image.image, image.number, image.file) for image in made())
    (shard,) = write_split(scratch, "train", rows, count=len(made()))
    return (scratch / shard.file).read_bytes()


def mutant(kind: str, content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _damage(changed, rng, unit=BLOCK if kind == "tar" else 1)
    if rng.random() < 0.5:
        changed = {"tar": _summed, "tfrecord": _checked}.get(kind, lambda x: x)(changed)
    return bytes(changed)


def read(kind: str, content: bytes, folder: Path) -> None:
    """As Podium reads such a file; raises UserError if it is refused as a whole."""
    folder.mkdir(exist_ok=True)
    if kind != "arrow":
        name = {"tar": "a.tar", "tfrecord": "a.tfrecord", "parquet": "a.parquet"}[kind]
        (folder / name).write_bytes(content)
        for left in folder.glob("0*"):
            left.unlink()
        scan_archive(SourceFile(str(folder / name), name, len(content), ""), folder, "0")
        return
    (folder / "train.arrow").write_bytes(content)
    shard = Shard("train.arrow", len(made()), len(content), "")  # no checksum that would stop it
    write_manifest(folder, ["a", "b", "c"], {"train": [shard]}, plan="")
    images = ImageSet.open(folder, "train")
    for index in range(len(images)):
        images.image(index).sum(), images.indexes[index].sum(), images.name(index), images.damaged(index)


def _damage(content: bytearray, rng: random.Random, unit: int) -> None:
    at = rng.randrange(len(content)) if content else 0
    piece = slice(at, at + rng.choice((1, 4, 8, 64, BLOCK)))
    kind = rng.randrange(6)
    if kind == 0 and content:
        content[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        width = rng.choice("BHIQ")
        number = rng.choice(_EDGES) % 256 ** struct.calcsize(width)
        content[at : at + struct.calcsize(width)] = struct.pack(f"{rng.choice('<>')}{width}", number)
    elif kind == 2:
        del content[at:]
    elif kind == 3:
        del content[piece]
    elif kind == 4:
        content[at:at] = content[piece]
    else:  # in a header, where there is one: the sizes of a tar, lengths of records
        start = at // BLOCK * BLOCK + 124 if unit == BLOCK else at
        field = rng.choice((b"77777777777\0", b"\xff" * 11 + b"\0", b"\x80" + b"\xff" * 11, b"-0000001000\0"))
        content[start : start + 12] = field


def _summed(tar: bytearray) -> bytearray:
    """With good checksums of every block that has a header's magic."""
    for at in range(0, len(tar) - BLOCK + 1, BLOCK):
        if tar[at + 257 : at + 262] == b"ustar":
            tar[at + 148 : at + 156] = b" " * 8
            tar[at + 148 : at + 156] = b"%06o\0 " % sum(tar[at : at + BLOCK])
    return tar


def _checked(records: bytearray) -> bytearray:
    at = 0
    while at + 16 <= len(records):
        length = bytes(records[at : at + 8])
        records[at + 8 : at + 12] = struct.pack("<I", masked_crc32c(length))
        end = at + 12 + int.from_bytes(length, "little")
        if end + 4 > len(records):
            break
        records[end : end + 4] = struct.pack("<I", masked_crc32c(bytes(records[at + 12 : end])))
        at = end + 4
    return records
