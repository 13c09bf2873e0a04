"""The files of a checkpoint and the list of their SHA-256 hashes. A checkpoint is complete when it has its list, and
good when every file matches it."""

import json
from pathlib import Path

from podium.host.files import reporting, sha256
from podium.host.sealed import SEAL, seal, unseal, write_sealed

HASHES = "hashes.json"
_METADATA = "_CHECKPOINT_METADATA"  # Orbax's


def complete_steps(directory: Path) -> list[int]:
    """The steps of the checkpoints in `directory` that were written to their end, ascending."""
    if not directory.is_dir():
        return []
    return sorted(int(c.name) for c in directory.iterdir() if c.name.isdigit() and (c / HASHES).exists())


def list_hashes(directory: Path) -> None:
    """Writes the list of a checkpoint whose other files are all there."""
    write_sealed(directory / HASHES, _hashes(directory))


def damage(directory: Path) -> str | None:
    """What is wrong with a checkpoint, or None. A disk or file server that does not answer is no damage: it may answer
    the next time."""
    name = HASHES
    try:
        for name, expected in unseal((directory / HASHES).read_bytes()).items():
            if _sha256(directory / name) != expected:
                return f"{name} does not match its SHA-256"
    except FileNotFoundError as error:
        return f"{error.filename} is missing"
    except OSError as error:
        with reporting(error.filename or directory, "make it readable, then run the same command again", action="read"):
            raise
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        return f"{name} is not readable: {error}"
    return None


def _hashes(directory: Path) -> dict[str, str]:
    files = sorted(f for f in directory.rglob("*") if f.is_file() and f.parent != directory)
    return {str(f.relative_to(directory)): _sha256(f) for f in (*files, directory / _METADATA)}


def _sha256(file: Path) -> str:
    """Hashes the file. Orbax's own gets a time stamp after the hashes are listed, which is left out."""
    if file.name != _METADATA:
        return sha256(file)
    fields = json.loads(file.read_bytes())
    fields.pop("commit_timestamp_nsecs", None)
    return seal(fields)[SEAL]
