"""Which split, shard and place an image of a source gets: a function of the source's rows and a seed. The
stored order is random, because the loader takes batches from fixed ranges: stored class by class, a batch
would hold few classes."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from podium.data.dataset.shards import shard_count, shard_name
from podium.data.prepare.sources.rows import Coded, coded
from podium.errors import UserError

SPLITS = ("train", "validation")
_NAMES = (*SPLITS, "test")
_TRAIN, _VALIDATION, _TEST = range(3)
_NAMES_AT_ONCE = 100_000
SHARE_NOT_USED = "validation_share is not used: the source has validation images"


@dataclass(frozen=True)
class ShardTask:
    split: str
    file: str
    rows: np.ndarray
    """int64: the rows of the table, in the order they are stored."""


def assign_splits(
    rows: pa.Table, validation_share: float, seed: int, *, unsplit: str = "train"
) -> tuple[pa.Table, list[str]]:
    """(rows of train and validation only, what a person should know about the choice)."""
    named, notes = coded(rows["split"]), []
    splits = np.array([*map(_NAMES.index, named.texts), _NAMES.index(unsplit)], np.int8)[named.codes]
    usable = rows["refused"].is_null().to_numpy()
    if _TEST in splits:
        if _VALIDATION in splits:
            notes.append(f"{np.sum(splits == _TEST):,} test images are not used: there are validation images")
        else:
            splits[splits == _TEST] = _VALIDATION
            notes.append("the test images serve as validation images")
    if _VALIDATION in splits:
        _check_classes(coded(rows["class_name"]), splits, usable & rows["number"].is_null().to_numpy())
    if validation_share and _VALIDATION in splits:
        notes.append(SHARE_NOT_USED)
    elif validation_share:
        held_out = np.flatnonzero(usable)[_hold_out(only(rows, usable), validation_share, seed)]
        splits[held_out] = _VALIDATION
        notes.append(f"{len(held_out):,} of {np.sum(usable):,} images are held out for validation")
    elif _VALIDATION not in splits:
        notes.append("there are no validation images; give some with --validation or --validation-share 0.1")
    column = pa.DictionaryArray.from_arrays(pa.array(splits.astype(np.int32)), pa.array(_NAMES))
    rows = rows.set_column(rows.schema.get_field_index("split"), "split", column)
    return only(rows, splits != _TEST), notes


def only(rows: pa.Table, chosen: np.ndarray) -> pa.Table:
    return rows if chosen.all() else rows.filter(pa.array(chosen)).combine_chunks()


def _check_classes(classes: Coded, splits: np.ndarray, by_name: np.ndarray) -> None:
    train, validation = (classes.used(by_name & (splits == split)) for split in (_TRAIN, _VALIDATION))
    unseen = sorted(validation - train)
    if train and unseen:
        raise UserError(
            f"{len(unseen)} classes have validation images but no training images, {unseen[0]!r} for one; "
            "both splits need the same classes"
        )


def _hold_out(rows: pa.Table, share: float, seed: int) -> np.ndarray:
    """The images whose names have hashes below the share of all hashes: an image keeps its split when others are
    added. At least one; but never the one with the largest hash of its class: a class without it would have a
    label and nothing to learn it from."""
    hashes = _hashes(rows["name"], seed)
    order = np.argsort(hashes, kind="stable")
    numbers = rows["number"]
    classes = numbers.to_numpy() if numbers.null_count == 0 else coded(rows["class_name"]).codes
    last_of_class = order[::-1][np.unique(classes[order[::-1]], return_index=True)[1]]
    candidates = order[~np.isin(order, last_of_class)]
    if len(rows) and not len(candidates):
        one_each = f"{len(rows)} images of {len(last_of_class)} classes"
        raise UserError(f"validation_share={share} of {one_each} leaves a class none to train on; give more images")
    return candidates[: max(1, np.count_nonzero(hashes[candidates] < share * 2**64))]


def _hashes(names: pa.ChunkedArray, seed: int) -> np.ndarray:
    """uint64 of each name; some at a time, as each takes fifty times its bytes while it is a Python object."""
    key, hashes = seed.to_bytes(8, "little"), np.empty(len(names), ">u8")
    for first in range(0, len(names), _NAMES_AT_ONCE):
        some = names.slice(first, _NAMES_AT_ONCE).to_pylist()
        digests = (hashlib.blake2b(name.encode(), digest_size=8, key=key).digest() for name in some)
        hashes[first : first + len(some)] = np.frombuffer(b"".join(digests), ">u8")
    return hashes


def lay_out(rows: pa.Table, seed: int) -> list[ShardTask]:
    splits, image_bytes = coded(rows["split"]), rows["bytes"].to_numpy()
    tasks = []
    for stream, split in enumerate(SPLITS):
        of_split = np.array([text == split for text in splits.texts])[splits.codes]
        members = np.flatnonzero(of_split)
        if len(members):
            order = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, stream])).permutation(members)
            count = shard_count(len(order), int(image_bytes[order].sum()))
            for index, part in enumerate(np.array_split(order, count)):
                tasks.append(ShardTask(split, shard_name(split, index, count), part))
    return tasks
