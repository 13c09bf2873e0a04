"""Reads every stored byte of a prepared directory and says what has changed since it was written, by file and, within a
shard, by image."""

from collections.abc import Iterator
from pathlib import Path

from podium.data.dataset.manifest import FORMAT, Manifest, Shard, damaged, read_manifest
from podium.data.dataset.shards import ImageSet
from podium.errors import UserError
from podium.host.files import sha256
from podium.host.sealed import unseal

REPORT = "report.json"
_NAMED_MOST = 3


def verify(directory: str | Path) -> Manifest:
    """The manifest of a directory in which nothing has changed; the first damage is raised."""
    manifest = read_manifest(directory)
    for damage in _changes(Path(directory), manifest):
        raise UserError(damage)
    return manifest


def changes(directory: str | Path) -> list[str]:
    """Each damage in a line; an empty list where all is as it was written."""
    try:
        return list(_changes(Path(directory), read_manifest(directory)))
    except UserError as error:
        return [str(error)]


def _changes(directory: Path, manifest: Manifest) -> Iterator[str]:
    for split, shards in manifest.splits.items():
        for shard in shards:
            path = directory / shard.file
            try:
                unchanged = sha256(path) == shard.sha256
            except OSError as error:
                yield str(damaged(path, error.strerror))
                continue
            if not unchanged:
                yield str(damaged(path, _where(directory, manifest, split, shard=shard)))
    try:
        if (directory / REPORT).exists():
            unseal((directory / REPORT).read_bytes(), required=manifest.format == FORMAT)
    except (OSError, ValueError) as error:
        yield f"{directory / REPORT} is damaged ({error}); only the list of images that were left out is lost"


def _where(directory: Path, manifest: Manifest, split: str, *, shard: Shard) -> str:
    """What in a shard has changed: the names of images, where they can still be told."""
    alone = Manifest(manifest.classes, {split: (shard,)}, manifest.format, manifest.plan)
    try:
        images = ImageSet(directory, alone, split)
    except UserError:
        return "its hash is not the manifest's"
    names = [images.name(image) for image in range(len(images)) if images.damaged(image)]
    if not names:
        return "its hash is not the manifest's"
    more = f" and {len(names) - _NAMED_MOST} more" if len(names) > _NAMED_MOST else ""
    return f"the image {', '.join(names[:_NAMED_MOST])}{more} is not what was stored"
