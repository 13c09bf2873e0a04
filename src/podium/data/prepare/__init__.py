"""`podium prepare`: any source in, shards and a manifest out. Every image is looked at once, kept bit for bit
where it is a JPEG, re-encoded where it is something else, and left out by name where it is broken. The story
in order: `find` and scan the source (`sources`), give each image its place (`layout`), move it there
(`transfer`), write the report and the manifest. A preparation that was killed resumes where it stopped
(`journal`)."""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from podium.data.dataset.manifest import WORK, Shard, damaged, has_manifest, read_manifest, write_manifest
from podium.data.dataset.verify import REPORT
from podium.data.decode import decode_pixels
from podium.data.prepare.journal import Journal, LeftOut
from podium.data.prepare.layout import SHARE_NOT_USED, assign_splits, lay_out, only
from podium.data.prepare.sources import Found, Scan, find, gather, number_classes, scan_archive, scan_folder
from podium.data.prepare.sources.rows import coded
from podium.data.prepare.transfer import Transfer, read_image, unusable
from podium.data.prepare_options import PrepareOptions
from podium.errors import UserError
from podium.host.files import reporting
from podium.host.sealed import unseal, write_sealed

_PLAN_VERSION = 4  # goes up when the same source and options would give other shards
_SHOWN = 3  # names of what was passed over
_REMOTE_WORKERS = 32  # for a folder behind a URL: they wait for the network, not for a core


@dataclass(frozen=True)
class Report:
    kind: str
    images: dict[str, int]
    classes: int
    reencoded: int
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    shards: int
    shards_resumed: int
    seconds: float


Progress = Callable[[str, int, int], None]
"""(stage, done, total), called by one thread at a time."""


def prepare(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: PrepareOptions | None = None,
    *,
    progress: Progress = lambda stage, done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Makes `out` a prepared directory. Called again after a kill, it resumes; after it has finished, it returns.

    >>> from podium import prepare
    >>> from podium.data.prepare_options import PrepareOptions
    >>> report = prepare("photos", "prepared-photos", PrepareOptions(validation_share=0.25))
    >>> sum(report.images.values()), report.classes, report.left_out
    (12, 3, ())
    """
    options, started, directory = options or PrepareOptions(), time.monotonic(), Path(out)
    found = find(os.fspath(source), options.train, options.validation)
    plan = _plan(found, options)
    again = "make room or make it writable, then run the same podium prepare again, and it resumes"
    with reporting(directory, again):  # a source that cannot be read has its own words before
        report = _finished(directory, plan)
        if report is None or (directory / WORK).exists():  # a kill may have come just before its removal
            with Journal.claim(directory, plan, say) as journal:
                # Another process may have finished it while this one waited for the claim.
                report = _finished(directory, plan)
                report = report or _prepare(
                    found, directory, journal, plan=plan, options=options, started=started, progress=progress
                )
                journal.close()
    if options.strict and report.left_out:  # by a preparation that was not
        raise unusable(report.left_out)
    return report


def _prepare(
    found: Found,
    directory: Path,
    journal: Journal,
    *,
    plan: str,
    options: PrepareOptions,
    started: float,
    progress: Progress,
) -> Report:
    workers = options.workers or _default_workers(found)
    scan = _scan(found, journal.work, workers, progress=progress)
    rows, notes = assign_splits(scan.rows, options.validation_share, options.seed, unsplit=options.unsplit)
    notes += _passed_over(found.passed_over)
    refused = rows["refused"].is_valid().to_numpy()
    left_out = [LeftOut(row["name"], row["split"], row["refused"]) for row in rows.filter(refused).to_pylist()]
    rows = only(rows, ~refused)
    splits_left = coded(rows["split"]).used()
    lost = [item for item in left_out if item.split not in splits_left]  # a whole split of them
    if lost or (left_out and options.strict):
        raise unusable(lost or left_out)
    classes, labels = number_classes(rows, scan.classes, scan.may_count_from_one)

    rows = rows.append_column("label", pa.array(labels))
    tasks = lay_out(rows, options.seed)
    resumed = sum(journal.recall(task.file) is not None for task in tasks)
    read = partial(read_image, archived=not found.folder)
    check = decode_pixels if options.check == "decode" else None
    written = partial(progress, "writing images")
    transfer = Transfer(journal, rows, read, check=check, strict=options.strict, progress=written)
    records = transfer.run(tasks, workers)

    left_out += [item for record in records for item in record.left_out]
    splits: dict[str, list[Shard]] = {}
    for task, record in zip(tasks, records, strict=True):
        splits.setdefault(task.split, []).append(record.shard)
    images = {split: sum(shard.images for shard in shards) for split, shards in splits.items()}
    if left_out and (options.strict or not all(images.values())):
        raise unusable(left_out)
    report = Report(
        kind=scan.kind,
        images=images,
        classes=len(classes),
        reencoded=sum(record.reencoded for record in records),
        left_out=tuple(left_out),
        notes=tuple(notes),
        shards=len(tasks),
        shards_resumed=resumed,
        seconds=round(time.monotonic() - started, 3),
    )
    write_sealed(directory / REPORT, asdict(report))
    write_manifest(directory, classes, splits, plan=plan)
    return report


def _passed_over(names: Sequence[str]) -> list[str]:
    """What to say of files that are no images by their names, and of empty folders."""
    empty = [name for name in names if name.endswith("/")]
    others = [name for name in names if not name.endswith("/")]
    notes = []
    for found, one, many in (
        (others, "file has no image's ending and was", "files have no image's ending and were"),
        (empty, "folder is empty and was", "folders are empty and were"),
    ):
        if found:
            what = one if len(found) == 1 else many
            shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
            notes.append(f"{len(found):,} {what} passed over: {shown}")
    return notes


def _plan(found: Found, options: PrepareOptions) -> str:
    """A hash of all that decides what the shards hold. `strict` and `workers` do not."""
    chosen = [_PLAN_VERSION, options.validation_share, options.unsplit, options.seed, options.check]
    digest = hashlib.sha256(json.dumps(chosen).encode())
    for file in found.files:
        digest.update(json.dumps([file.name, file.bytes, file.stamp, file.split]).encode())
    return digest.hexdigest()


def _finished(directory: Path, plan: str) -> Report | None:
    if not has_manifest(directory):
        return None
    if read_manifest(directory).plan != plan:
        other = "was prepared from another source or with other options"
        raise UserError(f"{directory} {other}; choose a new directory, or remove it")
    try:
        kept = unseal((directory / REPORT).read_bytes())
        left_out = tuple(LeftOut(**item) for item in kept.pop("left_out"))
        return Report(**{**kept, "left_out": left_out, "notes": tuple(kept["notes"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise damaged(directory / REPORT, error) from error


def _default_workers(found: Found) -> int:
    remote_folder = found.folder and any(file.remote for file in found.files)
    return _REMOTE_WORKERS if remote_folder else len(os.sched_getaffinity(0))


def _scan(found: Found, work: Path, workers: int, *, progress: Progress) -> Scan:
    """What all files of the source hold, as one scan."""
    if found.folder:
        return Scan("folder", scan_folder(found.files), classes=[], may_count_from_one=False)
    scans: list[Scan] = []
    with ThreadPoolExecutor(workers) as pool:
        slots = [f"{number:05d}" for number in range(len(found.files))]
        for scan in pool.map(scan_archive, found.files, [work] * len(slots), slots):
            scans.append(scan)
            progress("scanning archives", len(scans), len(slots))
    kinds = sorted({scan.kind for scan in scans})
    if len(kinds) > 1:
        raise UserError(f"the source mixes {' and '.join(kinds)}; name the files of one kind, as in SOURCE/*.tar")
    declared = {tuple(scan.classes) for scan in scans}
    if len(declared) > 1:
        raise UserError("the files of the source declare different class names; prepare them one by one")
    rows = gather([scan.rows for scan in scans])
    return Scan(kinds[0], rows, list(declared.pop()), any(scan.may_count_from_one for scan in scans))


@dataclass(frozen=True)
class Place:
    """Where the prepared form of a source is, or will be."""

    directory: Path
    found: Found | None
    """The files of the source; None if it is a prepared directory itself."""


def where(source: str | os.PathLike[str], cache: Path, options: PrepareOptions) -> Place:
    """Lists the source, and copies nothing."""
    source = os.fspath(source)
    if has_manifest(source) or Path(source, WORK).exists():
        return Place(Path(source), None)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(source.rstrip("/")).name).strip("-") or "data"
    found = find(source)
    return Place(cache / f"{name}-{_plan(found, options)[:16]}", found)


def prepared(
    source: str | os.PathLike[str],
    cache: Path,
    options: PrepareOptions,
    *,
    say: Callable[[str], None],
    progress: Progress,
) -> Path:
    """The prepared directory of `source`: itself if it is one, else one in the cache folder, made first where
    needed."""
    place = where(source, cache, options)
    source, directory, found = os.fspath(source), place.directory, place.found
    if found is None:
        read_manifest(source)
    elif has_manifest(directory):
        if (directory / WORK).exists():
            prepare(source, directory, options)  # removes it
    else:
        size = sum(file.bytes for file in found.files)
        say(
            f"{source} is not prepared yet: copying {size / 1e9:.3g} GB in {len(found.files):,} files "
            f"into {directory}, once ({_free_bytes(cache) / 1e9:.3g} GB are free there)"
        )
        for line in summary(prepare(source, directory, options, say=say, progress=progress)):
            if line != SHARE_NOT_USED:  # nobody has asked for one
                say(line)
    return directory


def _free_bytes(folder: Path) -> int:
    """On the disk that has, or will have, this folder."""
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return shutil.disk_usage(there).free


def summary(report: Report) -> list[str]:
    """The result in a few lines for a person."""
    counts = " + ".join(f"{count:,} {split}" for split, count in report.images.items())
    resumed = f", {report.shards_resumed} of {report.shards} shards from before" if report.shards_resumed else ""
    lines = [f"{counts} images of {report.classes:,} classes ({report.kind}) in {report.seconds:.1f} s{resumed}"]
    if report.reencoded:
        lines.append(f"{report.reencoded:,} were no plain JPEGs and are re-encoded")
    if report.left_out:
        first = report.left_out[0]
        lines.append(f"{len(report.left_out):,} left out, listed in {REPORT}; first, {first.name}: {first.reason}")
    return [*lines, *report.notes]
