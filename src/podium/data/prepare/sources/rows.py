"""What a scan of a source gives, whatever its format: an Arrow table with one row per image, saying where its
bytes lie, its split and its class, or why it is refused. `number_classes` then turns class names and numbers
into labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from podium.errors import UserError
from podium.host.names import is_utf8, printable

_CODED = pa.dictionary(pa.int32(), pa.string())  # few texts, each said many times: four bytes an image

SCHEMA = pa.schema(
    [
        ("path", _CODED),  # of the file, local or a URL …
        ("offset", pa.int64()),  # … and where in it the image lies
        ("bytes", pa.int64()),
        ("name", pa.large_string()),  # for people
        ("split", _CODED),  # null: the source does not say
        ("number", pa.int64()),  # the class as a number, as a name, or as both
        ("class_name", _CODED),
        ("refused", _CODED),  # the reason, where the image cannot be used
    ]
)
CLASSES_MAX = 1_000_000


class Rows:
    """Collects the rows of one file of a source."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._columns: list[list[Any]] = [[] for _ in SCHEMA]

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
        arrays = [_column(column, field.type) for column, field in zip(self._columns, SCHEMA, strict=True)]
        return pa.table(arrays, schema=SCHEMA)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, kind)


def gather(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables as one, each column in one piece: taking some rows of it costs as much as those rows,
    however many there are."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


@dataclass(frozen=True)
class Coded:
    """A column of texts as numbers."""

    texts: list[str]
    codes: np.ndarray
    """int32 [row]: which of the texts; −1 for none."""

    def used(self, rows: np.ndarray | slice = slice(None)) -> set[str]:
        """The texts of these rows."""
        return {self.texts[code] for code in np.unique(self.codes[rows]) if code >= 0}


def coded(column: pa.ChunkedArray) -> Coded:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    return Coded(whole.dictionary.to_pylist(), whole.indices.fill_null(-1).to_numpy(zero_copy_only=False))


def number_classes(rows: pa.Table, known: Sequence[str], one_based: bool) -> tuple[tuple[str, ...], np.ndarray]:
    """The classes, and the label of each row (int32). Names are numbered in sorted order, as everybody does;
    numbers are kept, but for `one_based` ones (ImageNet's TFRecords keep 0 for "background"), where no image
    has a 0.

    `known` are the class names a source declares, in order.
    """
    if not len(rows):
        raise UserError("the source has no image; give a folder, archive or file that holds labelled images")
    numbers, names = rows["number"], coded(rows["class_name"])
    if numbers.null_count == 0:
        return _keep_numbers(numbers.to_numpy(), names, known, one_based=one_based)
    if (names.codes < 0).any():
        mixed = "some images have class numbers, others only class names"
        raise UserError(f"{mixed}; give sources of one kind with --train and --validation")
    classes = sorted(names.used())
    place = {name: label for label, name in enumerate(classes)}
    labels = np.array([place.get(text, -1) for text in names.texts], np.int32)  # −1: of images that are left out
    return tuple(classes), labels[names.codes]


def _keep_numbers(
    numbers: np.ndarray, names: Coded, known: Sequence[str], *, one_based: bool
) -> tuple[tuple[str, ...], np.ndarray]:
    least, most = int(numbers.min()), int(numbers.max())
    first = int(one_based and least >= 1)
    count = max(len(known), most + 1 - first)
    if least < 0 or count > CLASSES_MAX:
        raise UserError(f"class numbers go from {least} to {most}; they have to count up from 0")
    classes = [*known, *(str(number + first) for number in range(len(known), count))]
    labels = (numbers - first).astype(np.int32)
    named = names.codes >= 0
    for label, code in np.unique(np.stack([labels[named], names.codes[named]]), axis=1).T:
        if label >= len(known) and names.texts[code]:
            classes[label] = names.texts[code]
    return tuple(classes), labels
