"""Lists the files of a source: a path or URL, with `{000..099}`, `{a,b}` and `*` where wanted; a folder of
images, or archives of some kind. Reads names and sizes, no contents."""

import glob
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import fsspec

from podium.errors import UserError
from podium.host.names import is_utf8, printable

_IMAGE_ENDING = re.compile(r"\.(jpe?g?|png|gif|bmp|webp|tiff?|p[gp]m|jp2|avif|hei[cf])$", re.I)
_SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "eval": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
REST = "rest"  # of a source whose validation images were chosen by hand
_ARCHIVE_ENDINGS = re.compile(r"\.(tar|tgz|tar\.\w+|tfrecords?|tfrec|record|parquet)(\.gz)?$|-\d+-of-\d+(\.gz)?$", re.I)
_NOT_REGULAR = "not a regular file"
_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")


@dataclass(frozen=True, slots=True)  # there may be millions
class SourceFile:
    path: str
    """Local path, or URL."""
    name: str
    """Relative to the source, with forward slashes."""
    bytes: int
    stamp: str
    """Changes when the file does: a modification time or an ETag."""
    split: str | None = None
    """The split that was given by hand: train, validation or REST."""
    refused: str | None = None

    @property
    def remote(self) -> bool:
        return "://" in self.path


@dataclass(frozen=True)
class Found:
    files: list[SourceFile]
    folder: bool
    """The files are the images themselves; else they are archives."""
    passed_over: tuple[str, ...] = ()
    """Names beside the images that no image has, and folders with nothing inside (they end in a slash)."""


def find(source: str, train: str | None = None, validation: str | None = None) -> Found:
    """`train` and `validation` are sources of their own, or files and patterns inside `source`."""
    if train or validation:
        parts = {
            "train" if train else REST: _inside(source, train) if train else source,
            "validation": _inside(source, validation),
        }
        listed = {split: _list(part) for split, part in parts.items() if part}
        files = [replace(file, split=split) for split, found in listed.items() for file in found]
        held_out = {_real(file.path) for file in listed.get("validation", [])}
        files = [file for file in files if file.split != REST or _real(file.path) not in held_out]
    else:
        files = _list(source)
    if any(is_image(file.name) for file in files):
        chosen = [file for file in files if is_image(file.name) or file.refused]
        taken = {file.name for file in chosen}
        return Found(chosen, folder=True, passed_over=tuple(f.name for f in files if f.name not in taken))
    # Links are fine here: the cache of the Hugging Face hub is made of them.
    regular = [file for file in files if file.refused != _NOT_REGULAR]
    archives = [file for file in regular if _ARCHIVE_ENDINGS.search(file.name) or len(files) == 1]
    if archives:
        for file in archives:
            _check_utf8(file.path)
        return Found(archives, folder=False)
    refused = next((f" ({file.name}: {file.refused})" for file in files if file.refused), "")
    wanted = "images in class folders, tars, TFRecords or Parquet files"
    raise UserError(f"{source} has {len(files)} files, but none of what is needed: {wanted}{refused}")


def is_image(name: str) -> bool:
    return _IMAGE_ENDING.search(name) is not None


def split_in_name(name: str) -> str | None:
    """The split of an archive, such as "train-00000-of-00004.parquet" or "val/7.tar": the first word that names a
    split."""
    *folders, file = name.split("/")
    words = [*folders, *re.split(r"[^A-Za-z]+", file)]
    return next((_SPLIT_NAMES[word.lower()] for word in words if word.lower() in _SPLIT_NAMES), None)


def split_of_folder(folder: str) -> str | None:
    return _SPLIT_NAMES.get(folder.lower())


def choose_split(given: str | None, named: str | None) -> str | None:
    """The split of images in a folder or archive that is named for one, or for none; what was given wins. The
    rest of a source is for training, but for its test images."""
    if given == REST:
        return "test" if named == "test" else "train"
    return given or named


def expand_braces(pattern: str) -> list[str]:
    """Expands braces like a shell: "a-{08..10}" → a-08, a-09, a-10; "{x,y}" → x, y."""
    pieces: list[list[str]] = []
    end = 0
    for brace in _BRACES.finditer(pattern):
        first, last, words = brace.groups()
        numbers = [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)] if first else words.split(",")
        pieces += [[pattern[end : brace.start()]], numbers]
        end = brace.end()
    return ["".join(choice) for choice in product(*pieces, [pattern[end:]])]


def _inside(source: str, pattern: str | None) -> str | None:
    if pattern is None or "://" in pattern or os.path.isabs(pattern):
        return pattern
    within = f"{source.rstrip('/')}/{pattern}"
    if "://" in source:
        return within
    inside = os.path.isdir(source) and (os.path.exists(within) or not os.path.exists(pattern))
    return within if inside else pattern


def _real(path: str) -> str:
    """The same for all names of a file; URLs were made alike when they were listed."""
    local = path.removeprefix("file://")
    return path if "://" in local else os.path.realpath(local)


def _list(source: str) -> list[SourceFile]:
    """Sorted by name, so that the same source always gives the same list."""
    _check_utf8(source)
    try:
        patterns = [source] if os.path.exists(source) else expand_braces(source)
        list_one = _list_remote if "://" in source else _list_local
        files = [file for pattern in patterns for file in list_one(pattern, source)]
    except (ImportError, ValueError) as error:  # fsspec names the package that a protocol needs
        raise UserError(f"{source}: {error}") from error
    except OSError as error:
        raise UserError(f"{source} cannot be listed ({error}); check the path and your rights to it") from error
    if not files:
        raise UserError(f"{source} matches no files; give a folder, an archive, or a pattern that finds some")
    return sorted(files, key=lambda file: file.name)


def _check_utf8(path: str) -> None:
    if not is_utf8(path):
        raise UserError(f"the path {printable(path)} is not UTF-8; rename it, at each ? it shows")


def _list_remote(pattern: str, source: str) -> Iterator[SourceFile]:
    system, root = fsspec.core.url_to_fs(pattern)
    _, source_root = fsspec.core.url_to_fs(source)
    is_glob = any(character in root for character in "*?[")
    # Of a single file, `find` gives that file.
    infos: dict[str, dict[str, Any]] = (system.glob if is_glob else system.find)(root, detail=True)
    prefix = None if is_glob or root in infos else _prefix(root, source_root)
    for path, info in infos.items():
        name = _name(path, source_root) if prefix is None else prefix + path[len(root) :].lstrip("/")
        if info["type"] == "file" and not _hidden(name):
            stamps = (info.get(key) for key in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "updated"))
            stamp = next((str(stamp) for stamp in stamps if stamp), "")
            yield SourceFile(system.unstrip_protocol(path), name, int(info["size"]), stamp)


def _list_local(pattern: str, source: str) -> Iterator[SourceFile]:
    if os.path.isdir(pattern):
        yield from _walk(pattern, _prefix(pattern, source), os.path.realpath(pattern))
    elif os.path.exists(pattern):
        yield _local_file(pattern, _name(pattern, source), os.stat(pattern))
    elif any(character in pattern for character in "*?["):
        for path in glob.iglob(pattern, recursive=True):
            if os.path.isfile(path):
                yield _local_file(path, _name(path, source), os.stat(path))
    else:
        raise UserError(f"{pattern} does not exist; give a folder, an archive, a pattern or a URL")


def _name(path: str, source: str) -> str:
    """The name of one of the files that `source` stands for: from the folder that it names before its first `{*?[`."""
    fixed = path if path == source else re.split(r"[{*?[]", source, maxsplit=1)[0]
    return os.path.relpath(path, os.path.dirname(fixed) or ".")


def _prefix(folder: str, source: str) -> str:
    """The prefix of names in one of the folders that `source` stands for, as in `{train,val}`: its path, from where it
    names a split. Folders of parts, as in `{part1,part2}`, have none: they hold the same classes."""
    parts = [] if folder == source else _name(folder, source).split("/")
    first = next((place for place, part in enumerate(parts) if split_of_folder(part)), len(parts))
    return "".join(f"{part}/" for part in parts[first:])


def _walk(folder: str, prefix: str, root: str) -> Iterator[SourceFile]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if _hidden(entry.name):
                continue
            if entry.is_symlink():
                target = os.path.realpath(entry.path)
                outside = os.path.commonpath([target, root]) != root
                if os.path.isdir(target):
                    refused = "a link to a folder; give its target as the source"
                    yield SourceFile(entry.path, name, 0, target, refused=refused)
                elif os.path.exists(target):
                    file = _local_file(entry.path, name, entry.stat())
                    yield replace(file, refused="a link that leads out of the source") if outside else file
                else:
                    yield SourceFile(entry.path, name, 0, target, refused="a link that leads nowhere")
            elif entry.is_dir():
                inside = _walk(entry.path, f"{name}/", root)
                yield next(inside, SourceFile(entry.path, f"{name}/", 0, ""))
                yield from inside
            else:
                yield _local_file(entry.path, name, entry.stat())


def _local_file(path: str, name: str, status: os.stat_result) -> SourceFile:
    refused = None if stat.S_ISREG(status.st_mode) else _NOT_REGULAR
    return SourceFile(path, name.replace(os.sep, "/"), status.st_size, str(status.st_mtime_ns), refused=refused)


def _hidden(name: str) -> bool:
    """`.DS_Store`, `._photo.jpg` of a Mac, `.cache` of the Hugging Face hub, and Podium's own work folder."""
    return any(part.startswith(".") for part in name.split("/"))
