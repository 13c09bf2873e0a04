"""Reads every byte of a run that Podium wrote, and says what has changed since: run.json and summary.json, the metrics
and the starts line by line, TensorBoard's records, and every file of every checkpoint. What nobody reads is not looked
at: the lock, and the text of Orbax's commit files.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from podium.errors import UserError
from podium.host.crc32c import masked_crc32c
from podium.host.sealed import SEAL, unseal
from podium.report.checked_lines import damaged_lines
from podium.train import run_directory
from podium.train.checkpoint_files import complete_steps, damage


def changes(run: str | Path) -> list[str]:
    """Each damage in a line; an empty list where all is as it was written."""
    return [line for check in (_about, _sealed, _records, _checkpoints) for line in check(Path(run))]


def _about(run: Path) -> Iterator[str]:
    try:
        run_directory.read(run)
    except UserError as error:
        yield str(error)


def _sealed(run: Path) -> Iterator[str]:
    sealed = SEAL.encode() in (run / "run.json").read_bytes()  # a run of 0.1.0 is not
    for name, lost in (
        ("summary.json", "how the run ended"),
        ("reduction.json", "the choice of a reduction"),
        ("checkpoints/best.json", "which checkpoint is the best"),
    ):
        try:
            if (run / name).exists():
                unseal((run / name).read_bytes(), required=sealed)
        except (OSError, ValueError) as error:
            yield f"{run / name} is damaged ({error}); {lost} is lost, no weight is"


def _records(run: Path) -> Iterator[str]:
    readers: list[tuple[str, Callable[[bytes], list[int]], str]] = [
        ("metrics.jsonl", damaged_lines, "line"),
        ("starts.jsonl", damaged_lines, "line"),
        ("tensorboard/*tfevents*", damaged_records, "record"),
    ]
    for pattern, damaged, unit in readers:
        for file in sorted(run.glob(pattern)):
            try:
                found = damaged(file.read_bytes())
            except OSError as error:
                yield f"{file} cannot be read ({error.strerror})"
                continue
            if found:
                yield f"{file} is damaged ({unit} {', '.join(map(str, found[:5]))}); a run that resumes leaves it out"


def damaged_records(content: bytes) -> list[int]:
    """The numbers, from 1, of records of TensorBoard that do not match their checksums. Where one begins is known by
    the length of the one before, so after a wrong length nothing is."""
    at, number = 0, 0
    while at < len(content):
        number += 1
        length, data_bytes = content[at : at + 8], int.from_bytes(content[at : at + 8], "little")
        if content[at + 8 : at + 12] != _crc(length):
            return [number]
        data, crc = content[at + 12 : at + 12 + data_bytes], content[at + 12 + data_bytes : at + 16 + data_bytes]
        if crc != _crc(data):
            return [number]
        at += 16 + data_bytes
    return []


def _crc(part: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(np.frombuffer(part, np.uint8)))


def _checkpoints(run: Path) -> Iterator[str]:
    for step in complete_steps(run / "checkpoints"):
        checkpoint = run / "checkpoints" / str(step)
        if found := damage(checkpoint):
            yield f"checkpoint {checkpoint} is damaged ({found}); a run that resumes takes the one before it"
