"""Lines of JSON that end with a CRC-32 of what stands before it, so that a changed byte is noticed line by line."""

import json
import zlib
from typing import Any

_FIELD = b', "crc32": '


def checked_line(fields: dict[str, Any]) -> bytes:
    """One object and a newline; the last field is the checksum."""
    text = json.dumps(fields).encode()[:-1]
    return text + _FIELD + str(zlib.crc32(text)).encode() + b"}\n"


def damaged_lines(content: bytes) -> list[int]:
    """The numbers, from 1, of lines that are no JSON objects or do not match their checksum. Lines of Podium 0.1 have
    none; a line without one after lines that have it is damaged. So is an end without a newline."""
    *lines, rest = content.split(b"\n")
    damaged, checked = [], False
    for number, line in enumerate([*lines, rest] if rest else lines, start=1):
        text, found, crc = line.rpartition(_FIELD)
        good = crc == str(zlib.crc32(text)).encode() + b"}" if found else not checked
        checked = checked or bool(found)
        if not (good and _is_object(line)) or number > len(lines):
            damaged.append(number)
    return damaged


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
