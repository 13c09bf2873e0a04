"""Tar files: of a folder of class folders, or WebDataset shards, where `7.jpg` and `7.cls` (or `7.json`)
belong together. Nothing is ever extracted: a scan notes where in the archive each image lies."""

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from podium.data.prepare.sources.find import choose_split, is_image, split_in_name
from podium.data.prepare.sources.folder import place, refusal
from podium.data.prepare.sources.rows import Rows
from podium.errors import UserError

_LABEL_BYTES_MAX = 2**20
_LABEL_KEYS = ("label", "cls", "class", "class_id", "class_name")


@dataclass(frozen=True, slots=True)  # there may be millions
class _Member:
    name: str
    offset: int
    bytes: int


def scan_tar(path: str, archive_name: str, given: str | None) -> tuple[str, pa.Table]:
    """("tar" or "webdataset", the rows)."""
    rows, named = Rows(path), split_in_name(archive_name)
    with open(path, "rb") as file:
        members = list(_members(file, archive_name, rows))
        labelled = {key for key, ending in map(_key, members) if ending in ("cls", "json")}
        if any(is_image(member.name) and _key(member)[0] in labelled for member in members):
            _add_samples(file, members, choose_split(given, named), rows=rows)
            return "webdataset", rows.table()
    images = [member for member in members if is_image(member.name)]
    for member, (where, class_name) in zip(images, place([m.name for m in images], given, named), strict=True):
        reason = refusal(where, class_name)
        if reason:
            rows.refuse(member.name, reason, where or None)
        else:
            rows.add(member.name, member.offset, member.bytes, split=where, class_name=class_name)
    return "tar", rows.table()


def _members(file: BinaryIO, archive_name: str, rows: Rows) -> Iterator[_Member]:
    """The regular files. What could only do harm, or is cut off, is refused by name."""
    file_bytes = file.seek(0, 2)
    file.seek(0)
    try:
        tar = tarfile.TarFile(fileobj=file)
    except (tarfile.TarError, ValueError) as error:
        raise UserError(f"{archive_name} is not a readable tar ({error}); get a whole copy of it") from error
    while (member := _next(tar)) is not None:
        parts = [part for part in member.name.replace("\\", "/").split("/") if part != "."] or [""]
        if member.isdir():
            continue
        if parts[0] == "" or ".." in parts:
            rows.refuse(member.name, "its path climbs out of the archive")
        elif member.issym() or member.islnk():
            rows.refuse(member.name, "a link")
        elif not member.isreg() or member.issparse():
            rows.refuse(member.name, "not a regular file")
        elif member.offset_data + member.size > file_bytes:
            rows.refuse(member.name, "truncated: the archive ends inside it")
        elif not parts[-1].startswith("."):
            yield _Member("/".join(parts), member.offset_data, member.size)
    # tarfile takes a damaged header for the end; the real end is a block of zeros.
    file.seek(min(tar.offset, file_bytes))
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        rows.refuse(archive_name, f"the archive is damaged or cut off at byte {min(tar.offset, file_bytes)}")


def _next(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    tar.members = []  # type: ignore[attr-defined]  # else it keeps every header in memory
    try:
        return tar.next()
    except (tarfile.TarError, ValueError):  # ValueError: numbers in a header that are none
        return None


def _key(member: _Member) -> tuple[str, str]:
    """What a sample's members have in common, and what tells them apart: ("x/7", "cls")."""
    folder, slash, base = member.name.rpartition("/")
    key, _, ending = base.partition(".")
    return folder + slash + key, ending.lower()


def _add_samples(file: BinaryIO, members: list[_Member], split: str | None, *, rows: Rows) -> None:
    samples: dict[str, dict[str, _Member]] = {}
    for member in members:
        key, ending = _key(member)
        samples.setdefault(key, {})[ending] = member
    for key, sample in samples.items():
        image = next((member for member in sample.values() if is_image(member.name)), None)
        if image is None:
            rows.refuse(key, "no image beside its label", split)
            continue
        number, class_name = _label(file, sample)
        if number is None and class_name is None:
            rows.refuse(image.name, "no label beside the image", split)
        else:
            rows.add(image.name, image.offset, image.bytes, split=split, number=number, class_name=class_name)


def _label(file: BinaryIO, sample: dict[str, _Member]) -> tuple[int | None, str | None]:
    found: object = None
    if "cls" in sample:
        found = _read(file, sample["cls"]).decode(errors="replace").strip()
    elif "json" in sample:
        try:
            fields = json.loads(_read(file, sample["json"]))
        except (ValueError, RecursionError):
            return None, None
        if isinstance(fields, dict):
            found = next((fields[key] for key in _LABEL_KEYS if key in fields), None)
    if isinstance(found, str) and re.fullmatch(r"-?[0-9]{1,9}", found):
        found = int(found)
    if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**31:
        return found, None
    return None, found if isinstance(found, str) and found else None


def _read(file: BinaryIO, member: _Member) -> bytes:
    file.seek(member.offset)
    return file.read(min(member.bytes, _LABEL_BYTES_MAX))
