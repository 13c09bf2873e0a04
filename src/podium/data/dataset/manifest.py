"""`manifest.json`, the list of contents of a prepared directory: classes, splits, and a hash for every shard
and for the whole. It is written last and atomically, so a directory without one is unfinished. The shards
themselves are the business of `shards`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from podium.errors import UserError
from podium.host.sealed import unseal, write_sealed

FAMILY = "podium-shards-"
FORMAT = f"{FAMILY}3"
"""The format that is written. Format 1, of Podium 0.1, had no column `index`, and format 2 no checksums; both open."""
_READABLE = (f"{FAMILY}1", f"{FAMILY}2", FORMAT)
_HASHED_AS = {FORMAT: f"{FAMILY}2"}  # the same images have the same content hash, with checksums or without
MANIFEST = "manifest.json"
WORK = ".prepare"
"""The folder inside an output directory where `prepare` keeps its journal until the manifest is written."""


@dataclass(frozen=True)
class Shard:
    file: str
    images: int
    bytes: int
    sha256: str
    """The file's SHA-256."""
    content_sha256: str = ""
    """A hash of images, labels, sizes and names, not of what is derived from them. Format 1 has none."""
    data: tuple[tuple[int, int], ...] = ()
    """(first byte, bytes) of each part of the file with images or seek indexes, which have their own checksums."""
    frame_crc32: int | None = None
    """The checksum of the rest of the file, all of which is read when it is opened. Formats 1 and 2 have none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", tuple((int(first), int(count)) for first, count in self.data))


@dataclass(frozen=True)
class Manifest:
    classes: tuple[str, ...]
    splits: dict[str, tuple[Shard, ...]]
    format: str
    plan: str
    """A hash of what the shards were made from: a second run of the same preparation recognises its own
    work."""

    @property
    def content_hash(self) -> str:
        """SHA-256 of classes, order and every image with its label; the same on every machine."""
        hashes = {
            name: [shard.content_sha256 or shard.sha256 for shard in shards] for name, shards in self.splits.items()
        }
        text = json.dumps([_HASHED_AS.get(self.format, self.format), self.classes, hashes], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def images(self, split: str) -> int:
        return sum(shard.images for shard in self.splits[split])


def damaged(path: Path, reason: object) -> UserError:
    return UserError(f"{path} is damaged ({reason}); copy it again or prepare the data again")


def write_manifest(
    directory: str | Path, classes: Sequence[str], splits: Mapping[str, Sequence[Shard]], *, plan: str
) -> Manifest:
    """The last file written: it makes the directory a finished one."""
    manifest = Manifest(tuple(classes), {name: tuple(shards) for name, shards in splits.items()}, FORMAT, plan)
    text = {
        "format": FORMAT,
        "content_hash": manifest.content_hash,
        "splits": {
            name: {"images": manifest.images(name), "shards": [asdict(shard) for shard in shards]}
            for name, shards in manifest.splits.items()
        },
        "classes": manifest.classes,
        "plan": plan,
        "created_by": {package: _version(package) for package in ("podium", "pyarrow", "pillow")},
    }
    write_sealed(Path(directory) / MANIFEST, text)
    return manifest


def has_manifest(directory: str | Path) -> bool:
    """Whole or damaged, but one of ours: other programs write a manifest.json too."""
    try:
        return f'"{FAMILY}'.encode() in (Path(directory) / MANIFEST).read_bytes()
    except PermissionError:  # `read_manifest` will tell
        return True
    except OSError:
        return False


def read_manifest(directory: str | Path) -> Manifest:
    """The manifest of a finished directory; anything else is an error that says how to get one."""
    directory, how = Path(directory), "make a prepared directory with: podium prepare SOURCE OUT"
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; {how}")
    try:
        text = (directory / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        if (directory / WORK).is_dir():
            how = "run the same podium prepare again, and it resumes"
            raise UserError(f"{directory} is unfinished; {how}") from None
        raise UserError(f"{directory} has no {MANIFEST}; {how}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(directory / MANIFEST, error) from error
    try:
        found = unseal(text)
        if found["format"] not in _READABLE:
            how = f"prepare it again with this Podium, which reads {' and '.join(_READABLE)}"
            raise UserError(f"{directory} has the format {found['format']!r}; {how}")
        unseal(text, required=found["format"] == FORMAT)
        splits = {name: tuple(Shard(**shard) for shard in split["shards"]) for name, split in found["splits"].items()}
        manifest = Manifest(tuple(found["classes"]), splits, found["format"], found["plan"])
        if found["content_hash"] != manifest.content_hash:
            raise ValueError("its hashes do not add up")
        if any(Path(shard.file).name != shard.file for shards in splits.values() for shard in shards):
            raise ValueError("a shard lies outside the directory")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(directory / MANIFEST, error) from error
    return manifest


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"
