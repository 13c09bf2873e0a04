"""Which split, shard and place an image of a source gets: a function of the source's rows and a seed. The
stored order is random, because the loader takes batches from fixed ranges: stored class by class, a batch
would hold few classes."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from podium.data.dataset.shards import shard_count, shard_name
from podium.errors import UserError

SPLITS = ("train", "validation")


@dataclass(frozen=True)
class ShardTask:
    split: str
    file: str
    rows: np.ndarray
    """int64: the rows of the table, in the order they are stored."""


def assign_splits(
    rows: pa.Table, validation_share: float, seed: int, unsplit: str = "train"
) -> tuple[pa.Table, list[str]]:
    """(rows of train and validation only, what a person should know about the choice)."""
    splits = np.array(pc.fill_null(rows["split"], unsplit).to_pylist(), dtype=object)
    notes, usable = [], rows["refused"].is_null().to_numpy()
    if "test" in splits:
        if "validation" in splits:
            notes.append(f"{np.sum(splits == 'test'):,} test images are not used: there are validation images")
        else:
            splits[splits == "test"] = "validation"
            notes.append("the test images serve as validation images")
    if "validation" in splits:
        _check_classes(rows["class_name"].to_pylist(), splits, usable & rows["number"].is_null().to_numpy())
    if validation_share and "validation" in splits:
        notes.append("validation_share is not used: the source has validation images")
    elif validation_share:
        held_out = np.flatnonzero(usable)[_hold_out(rows.filter(pa.array(usable)), validation_share, seed)]
        splits[held_out] = "validation"
        notes.append(f"{len(held_out):,} of {np.sum(usable):,} images are held out for validation")
    elif "validation" not in splits:
        notes.append("there are no validation images; give some with --validation or --validation-share 0.1")
    column = rows.schema.get_field_index("split")
    rows = rows.set_column(column, "split", pa.array(splits.tolist(), pa.string()))
    return rows.filter(pa.array(np.isin(splits, SPLITS))), notes


def _check_classes(class_names: list[str | None], splits: np.ndarray, by_name: np.ndarray) -> None:
    train, validation = ({class_names[i] for i in np.flatnonzero(by_name & (splits == split))} for split in SPLITS)
    unseen = sorted(map(str, validation - train))
    if train and unseen:
        raise UserError(
            f"{len(unseen)} classes have validation images but no training images, {unseen[0]!r} for one; "
            "both splits need the same classes"
        )


def _hold_out(rows: pa.Table, share: float, seed: int) -> np.ndarray:
    """The images whose names have hashes below the share of all hashes: an image keeps its split when others are
    added. At least one; but never the one with the largest hash of its class: a class without it would have a
    label and nothing to learn it from."""
    key = seed.to_bytes(8, "little")
    digests = [hashlib.blake2b(name.encode(), digest_size=8, key=key).digest() for name in rows["name"].to_pylist()]
    hashes = np.frombuffer(b"".join(digests), ">u8")
    order = np.argsort(hashes, kind="stable")
    classes = rows["number"] if rows["number"].null_count == 0 else rows["class_name"]
    last_of_class = {name: row for row, name in zip(order, classes.take(order).to_pylist(), strict=True)}
    candidates = order[~np.isin(order, list(last_of_class.values()))]
    if len(rows) and not len(candidates):
        one_each = f"{len(rows)} images of {len(last_of_class)} classes"
        raise UserError(f"validation_share={share} of {one_each} leaves a class none to train on; give more images")
    return candidates[: max(1, np.count_nonzero(hashes[candidates] < share * 2**64))]


def lay_out(rows: pa.Table, seed: int) -> list[ShardTask]:
    splits, image_bytes = np.array(rows["split"].to_pylist()), rows["bytes"].to_numpy()
    tasks = []
    for stream, split in enumerate(SPLITS):
        members = np.flatnonzero(splits == split)
        if len(members):
            order = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, stream])).permutation(members)
            count = shard_count(len(order), int(image_bytes[order].sum()))
            for index, part in enumerate(np.array_split(order, count)):
                tasks.append(ShardTask(split, shard_name(split, index, count), part))
    return tasks
