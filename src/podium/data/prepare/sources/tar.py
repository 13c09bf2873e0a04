"""Tar files: of a folder of class folders, or WebDataset shards, where `7.jpg` and `7.cls` (or `7.json`)
belong together. Nothing is ever extracted: a scan notes where in the archive each image lies."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from podium.data.prepare.sources.find import choose_split, is_image, split_in_name
from podium.data.prepare.sources.folder import place, refusal
from podium.data.prepare.sources.rows import CLASSES_MAX, Rows
from podium.data.prepare.sources.tar_headers import Damaged, Header, headers
from podium.errors import UserError

_LABEL_BYTES_MAX = 2**20
_CLASS_NAME_MAX = 1000  # characters
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
    try:
        for header in headers(file):
            parts = [part for part in header.name.replace("\\", "/").split("/") if part != "."] or [""]
            if header.folder:
                continue
            if reason := header.refused or _harm(header, parts):
                rows.refuse(header.name, reason)
            elif header.offset + header.bytes > file_bytes:
                rows.refuse(header.name, "truncated: the archive ends inside it")
            elif not parts[-1].startswith("."):
                yield _Member("/".join(parts), header.offset, header.bytes)
    except Damaged as damaged:
        at = int(damaged.args[0])
        if at == 0:
            raise UserError(f"{archive_name} is not a readable tar; get a whole copy of it") from None
        rows.refuse(archive_name, f"the archive is damaged or cut off at byte {at}")


def _harm(header: Header, parts: list[str]) -> str | None:
    if parts[0] == "" or ".." in parts:
        return "its path climbs out of the archive"
    if header.link:
        return "a link"
    return None if header.regular else "not a regular file"


def _key(member: _Member) -> tuple[str, str]:
    """What a sample's members have in common, and what tells them apart: ("x/7", "cls")."""
    folder, slash, base = member.name.rpartition("/")
    key, _, ending = base.partition(".")
    return folder + slash + key, ending.lower()


def _add_samples(file: BinaryIO, members: list[_Member], split: str | None, *, rows: Rows) -> None:
    samples: dict[str, dict[str, _Member]] = {}
    for member in members:
        key, ending = _key(member)
        first = samples.setdefault(key, {}).setdefault(ending, member)
        if first is not member:
            rows.refuse(member.name, f"a second {ending} of the sample {key}: the first is used", split)
    for key, sample in samples.items():
        image = next((member for member in sample.values() if is_image(member.name)), None)
        if image is None:
            rows.refuse(key, "no image beside its label", split)
            continue
        try:
            number, class_name = _label(file, sample)
        except ValueError as error:
            rows.refuse(image.name, str(error), split)
        else:
            rows.add(image.name, image.offset, image.bytes, split=split, number=number, class_name=class_name)


def _label(file: BinaryIO, sample: dict[str, _Member]) -> tuple[int | None, str | None]:
    """(number, None) or (None, name). Raises ValueError."""
    found: object = None
    if "cls" in sample:
        found = _read(file, sample["cls"]).decode(errors="replace").strip()
    elif "json" in sample:
        try:
            fields = json.loads(_read(file, sample["json"]))
        except (ValueError, RecursionError):
            raise ValueError("its JSON is not readable") from None
        if isinstance(fields, dict):
            found = next((fields[key] for key in _LABEL_KEYS if key in fields), None)
    if isinstance(found, str) and re.fullmatch(r"-?[0-9]+", found):
        found = int(found) if len(found) < 20 else 2**63
    if isinstance(found, str) and 0 < len(found) <= _CLASS_NAME_MAX:
        return None, found
    if isinstance(found, int) and not isinstance(found, bool):
        if not 0 <= found < CLASSES_MAX:
            raise ValueError(f"a class number beyond 0 … {CLASSES_MAX - 1:,}")
        return found, None
    raise ValueError("no label beside the image")


def _read(file: BinaryIO, member: _Member) -> bytes:
    file.seek(member.offset)
    return file.read(min(member.bytes, _LABEL_BYTES_MAX))
