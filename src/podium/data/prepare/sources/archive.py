"""One archive of a source, of whatever kind: tells the kind by the first bytes, copies to the work folder
what cannot be read at random (files behind a URL, compressed ones), scans it, and keeps the scan there, so
that a resumed preparation does not scan twice."""

import bz2
import gzip
import lzma
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import pyarrow as pa

from podium.data.prepare.sources.find import SourceFile, choose_split, split_in_name
from podium.data.prepare.sources.parquet import scan_parquet
from podium.data.prepare.sources.rows import SCHEMA
from podium.data.prepare.sources.tar import scan_tar
from podium.data.prepare.sources.tfrecord import is_tfrecord, scan_tfrecord
from podium.errors import UserError
from podium.host.files import NO_ROOM, replacing, sha256
from podium.host.sealed import unseal, write_sealed

_DECOMPRESS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


@dataclass(frozen=True)
class Scan:
    kind: str
    rows: pa.Table
    classes: list[str]
    """The class names that the archive declares; most declare none."""
    may_count_from_one: bool


def scan_archive(file: SourceFile, work: Path, slot: str) -> Scan:
    """`slot` names this archive's files in the work folder."""
    kept = work / f"{slot}.scan"
    if scan := _load(kept, file):
        return scan
    path = _at_hand(file, work / f"{slot}.copy")
    with open(path, "rb") as opened:
        head = opened.read(512)
    split = choose_split(file.split, split_in_name(file.name))
    classes: list[str] = []
    may_count_from_one = False
    if head[:4] == b"PAR1":
        kind = "parquet"
        classes, rows = scan_parquet(path, file.name, split, unpacked=work / f"{slot}.images")
    elif head[257:262] == b"ustar" or file.name.endswith(".tar"):
        kind, rows = scan_tar(path, file.name, file.split)
    elif is_tfrecord(head):
        kind = "tfrecord"
        may_count_from_one, rows = scan_tfrecord(path, file.name, split)
    else:
        raise UserError(
            f"{file.name} is neither tar, TFRecord nor Parquet, by its first bytes; take it out of the source"
        )
    scan = Scan(kind, rows, classes, may_count_from_one)
    _keep(scan, kept)
    return scan


def _at_hand(file: SourceFile, copy: Path) -> str:
    """The path of a local, uncompressed file with the contents."""
    if copy.exists():
        return str(copy)
    try:
        with fsspec.open(file.path, "rb") as opened:
            head = opened.read(6)
            opened.seek(0)
            decompress = next((open_ for magic, open_ in _DECOMPRESS.items() if head.startswith(magic)), None)
            if decompress is None and not file.remote:
                return file.path
            _copy(decompress(opened) if decompress else opened, copy)
            return str(copy)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise
        raise UserError(f"{file.path} cannot be read to its end ({error}); get a whole copy of it") from error


def _copy(source: BinaryIO, path: Path) -> None:
    with replacing(path) as temporary, temporary.open("wb") as target:
        shutil.copyfileobj(source, target, 2**20)


def _keep(scan: Scan, kept: Path) -> None:
    """Without the path: until the scan is loaded, source and work folder may move, or be named from elsewhere."""
    paths = scan.rows["path"].unique().to_pylist()
    copy = next((Path(path).name for path in paths if Path(path).parent == kept.parent), None)
    rows = scan.rows.drop_columns("path")
    with replacing(kept) as temporary, pa.ipc.new_file(str(temporary), rows.schema) as writer:
        writer.write_table(rows)
    about = [scan.kind, scan.classes, scan.may_count_from_one, copy]
    write_sealed(_about(kept), {"scan": about, "rows_sha256": sha256(kept)})


def _load(kept: Path, file: SourceFile) -> Scan | None:
    """None where there is no scan, it has changed, the unpacked copy that was scanned is gone, or another version wrote
    it: then the archive is scanned again."""
    try:
        about = unseal(_about(kept).read_bytes(), required=True)
        if about["rows_sha256"] != sha256(kept):
            return None
        kind, classes, may_count_from_one, copy = about["scan"]
        with pa.ipc.open_file(str(kept)) as reader:
            rows = reader.read_all()
    except (OSError, ValueError, KeyError):  # pa.ArrowInvalid is a ValueError
        return None
    path = str(kept.with_name(copy)) if copy else file.path
    if copy and not os.path.exists(path):
        return None
    rows = rows.add_column(0, SCHEMA.field("path"), _one_path(path, len(rows)))
    if not rows.schema.equals(SCHEMA):  # a scan by another Podium
        return None
    return Scan(kind, rows, classes, may_count_from_one)


def _about(kept: Path) -> Path:
    return kept.with_suffix(".scan.json")


def _one_path(path: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([path]))
