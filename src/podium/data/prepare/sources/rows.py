"""What a scan of a source gives, whatever its format: an Arrow table with one row per image, saying where its
bytes lie, its split and its class, or why it is refused. `number_classes` then turns class names and numbers
into labels."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from podium.errors import UserError

SCHEMA = pa.schema(
    [
        ("path", pa.string()),  # of the file, local or a URL …
        ("offset", pa.int64()),  # … and where in it the image lies
        ("bytes", pa.int64()),
        ("name", pa.string()),  # for people
        ("split", pa.string()),  # null: the source does not say
        ("number", pa.int64()),  # the class as a number, as a name, or as both
        ("class_name", pa.string()),
        ("refused", pa.string()),  # the reason, where the image cannot be used
    ]
)
_CLASSES_MAX = 1_000_000


class Rows:
    """Collects the rows of one file of a source."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._columns: list[list] = [[] for _ in SCHEMA]

    def add(
        self,
        name: str,
        offset: int,
        image_bytes: int,
        *,
        split: str | None = None,
        number: int | None = None,
        class_name: str | None = None,
        path: str | None = None,
    ) -> None:
        path = path or self._path
        if is_utf8(path) and is_utf8(class_name or ""):
            self._append(path, offset, image_bytes, name, split, number, class_name, None)
        else:
            self.refuse(name, "its path or class is not UTF-8; rename it", split)

    def refuse(self, name: str, reason: str, split: str | None = None) -> None:
        self._append(self._path, 0, 0, name, split, None, None, reason)

    def _append(self, *row: str | int | None) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def table(self) -> pa.Table:
        names = SCHEMA.get_field_index("name")
        self._columns[names] = [printable(name) for name in self._columns[names]]
        arrays = [pa.array(column, field.type) for column, field in zip(self._columns, SCHEMA, strict=True)]
        return pa.table(arrays, schema=SCHEMA)


def printable(name: str) -> str:
    """Names of files and of members of archives need not be Unicode: Python marks the bytes that are not by
    surrogates, which neither Arrow nor a terminal takes."""
    return name.encode(errors="replace").decode()


def is_utf8(name: str) -> bool:
    return printable(name) == name


def number_classes(rows: pa.Table, known: Sequence[str], one_based: bool) -> tuple[tuple[str, ...], np.ndarray]:
    """The classes, and the label of each row (int32). Names are numbered in sorted order, as everybody does;
    numbers are kept, but for `one_based` ones (ImageNet's TFRecords keep 0 for "background"), where no image
    has a 0.

    `known` are the class names a source declares, in order.
    """
    if not len(rows):
        raise UserError("the source has no image; give a folder, archive or file that holds labelled images")
    numbers, names = rows["number"], rows["class_name"]
    if numbers.null_count == 0:
        labels = numbers.to_numpy()
        first = int(one_based and labels.min() >= 1)
        count = max(len(known), int(labels.max()) + 1 - first)
        if labels.min() < 0 or count > _CLASSES_MAX:
            raise UserError(f"class numbers go from {labels.min()} to {labels.max()}; they have to count up from 0")
        classes = [*known, *(str(number + first) for number in range(len(known), count))]
        for pair in (
            pa.table([numbers, names], ["number", "name"]).group_by(["number", "name"]).aggregate([]).to_pylist()
        ):
            if pair["name"] and pair["number"] - first >= len(known):
                classes[pair["number"] - first] = pair["name"]
        return tuple(classes), (labels - first).astype(np.int32)
    if names.null_count:
        mixed = "some images have class numbers, others only class names"
        raise UserError(f"{mixed}; give sources of one kind with --train and --validation")
    classes = sorted(pc.unique(names).to_pylist())
    labels = pc.index_in(names, pa.array(classes)).to_numpy()
    return tuple(classes), labels.astype(np.int32)
