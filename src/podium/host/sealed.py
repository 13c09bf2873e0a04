"""JSON objects that carry a hash of themselves, so that a changed byte in the file is noticed when it is read. The hash
is of the values, not of the text: a file may be laid out anew. Files of Podium 0.1 have none and are read as they are.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from podium.host.files import write_atomic

SEAL = "sha256"


def seal(fields: dict[str, Any]) -> dict[str, Any]:
    """`fields`, and last of them their hash."""
    return {**fields, SEAL: _hash(fields)}


def write_sealed(path: Path, fields: dict[str, Any]) -> None:
    write_atomic(path, json.dumps(seal(fields), indent=1, ensure_ascii=False))


def unseal(text: str | bytes, *, required: bool = False) -> dict[str, Any]:
    """The fields without their hash. Raises ValueError if they do not match it, or are no JSON object; with `required`
    also if there is none."""
    try:
        fields = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    kept = fields.pop(SEAL, None)
    if kept is None and required:
        raise ValueError("it has no hash of itself")
    if kept is not None and kept != _hash(fields):
        raise ValueError("it does not match its own hash")
    return fields


def _hash(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
