"""A folder of class folders, with split folders and a common top folder where there are any: `cat/1.jpg`,
`train/cat/1.jpg`, `photos/val/cat/1.jpg`. The same rule reads the members of a tar made from such a
folder."""

from collections.abc import Sequence

import pyarrow as pa

from podium.data.prepare.sources.find import REST, SourceFile, choose_split, split_of_folder
from podium.data.prepare.sources.rows import Rows
from podium.errors import UserError


def scan_folder(files: Sequence[SourceFile]) -> pa.Table:
    rows = Rows("")
    images = [file.name for file in files if not file.refused]
    if images and not any("/" in name for name in images):
        raise UserError(
            f"{len(images):,} images lie side by side ({images[0]}, …), so they have no classes; make one sub-folder "
            f"per class, as in cat/{images[0]}"
        )
    for file in files:
        if file.refused:
            rows.refuse(file.name, file.refused, choose_split(file.split, None))
    for given in (None, "train", "validation", REST):
        group = [file for file in files if file.split == given and not file.refused]
        for file, (split, class_name) in zip(group, place([f.name for f in group], given), strict=True):
            reason = refusal(split, class_name)
            if reason:
                rows.refuse(file.name, reason, split or None)
            else:
                rows.add(file.name, 0, file.bytes, split=split, class_name=class_name, path=file.path)
    return rows.table()


def place(names: Sequence[str], given: str | None, named: str | None = None) -> list[tuple[str | None, str | None]]:
    """(split, class) of each image. The class is None where no class folder holds the image; the split is
    None where the source has no splits, and "" where it has some and the image lies beside them. `named` is the
    split that the archive's name tells: split folders inside count more, and are no classes either way."""
    paths = [name.split("/") for name in names]
    while paths and all(len(p) >= 3 and p[0] == paths[0][0] and not split_of_folder(p[0]) for p in paths):
        paths = [path[1:] for path in paths]
    if any(len(path) >= 3 and split_of_folder(path[0]) for path in paths):
        folders = [split_of_folder(path[0]) for path in paths]
        _check_layout(names, folders)
        splits = [choose_split(given, folder) if folder else "" for folder in folders]
        return [(split, path[1] if len(path) >= 3 else None) for split, path in zip(splits, paths, strict=True)]
    return [(choose_split(given, named), path[0] if len(path) >= 2 else None) for path in paths]


def _check_layout(names: Sequence[str], folders: Sequence[str | None]) -> None:
    """A few stray images are left out by name; where they are the most, it is the layout that was not understood."""
    outside = [name for name, folder in zip(names, folders, strict=True) if not folder]
    if 2 * len(outside) > len(names):
        inside = next(name for name, folder in zip(names, folders, strict=True) if folder)
        raise UserError(
            f"{len(names) - len(outside):,} images lie in split folders ({inside} for one) and {len(outside):,} beside "
            f"them ({outside[0]} for one); move all into split folders, or none"
        )


def refusal(split: str | None, class_name: str | None) -> str | None:
    if split == "":
        return "outside the split folders"
    return None if class_name else "not in a class folder"
