"""Parquet in the layout of the Hugging Face hub: `image: struct<bytes, path>`, a label column, and the class
names in the schema's metadata. Images in Parquet are compressed in groups of many, so a scan first unpacks
them into one plain file where each can be reached by itself."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from podium.data.prepare.sources.rows import CLASSES_MAX, Rows
from podium.errors import UserError
from podium.host.files import NO_ROOM, replacing

_IMAGE_COLUMNS = ("image", "img", "jpg", "jpeg", "png", "picture")
_LABEL_COLUMNS = ("label", "labels", "fine_label", "cls", "class", "target")


def scan_parquet(path: str, file_name: str, split: str | None, *, unpacked: Path) -> tuple[list[str], pa.Table]:
    """(class names as declared, the rows); the images go into the file `unpacked`."""
    rows, row, offset = Rows(str(unpacked)), 0, 0
    try:
        parquet = pq.ParquetFile(path)
        image_column, label_column = _columns(parquet.schema_arrow, file_name)
        classes = _declared_classes(parquet.schema_arrow, label_column)
        with replacing(unpacked) as temporary, temporary.open("wb") as file:
            for batch in parquet.iter_batches(batch_size=256, columns=[image_column, label_column]):
                images, paths = _images(batch.column(image_column))
                labels = batch.column(label_column).to_pylist()
                for image, image_path, label in zip(images, paths, labels, strict=True):
                    name = image_path or f"{file_name}:{row}"
                    row += 1
                    if image is None:
                        rows.refuse(name, "no image bytes in the file", split)
                    elif label is None or label == -1:  # the hub's sign for "not told", as in ImageNet's test split
                        rows.refuse(name, "no label", split)
                    elif classes and not 0 <= label < len(classes):
                        rows.refuse(name, f"label {label}, but {len(classes)} classes", split)
                    elif not isinstance(label, str) and not 0 <= label < CLASSES_MAX:
                        rows.refuse(name, f"label {label}, not from 0 to {CLASSES_MAX - 1:,}", split)
                    else:
                        number, class_name = (None, label) if isinstance(label, str) else (label, None)
                        rows.add(name, offset, len(image), split=split, number=number, class_name=class_name)
                        offset += file.write(image)
        return classes, rows.table()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:  # ValueError: text that is not UTF-8
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise
        reason = str(error).partition("\n")[0]
        raise UserError(f"{file_name} is not readable Parquet ({reason}); get a whole copy of it") from error


def _images(column: Any) -> tuple[list[bytes | None], list[str | None]]:
    """(files, paths) of a column of structs or of plain byte strings."""
    if not pa.types.is_struct(column.type):
        return column.to_pylist(), [None] * len(column)
    fields = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
    paths = fields["path"].to_pylist() if "path" in fields and pa.types.is_string(fields["path"].type) else None
    return fields["bytes"].to_pylist(), paths or [None] * len(column)


def _columns(schema: pa.Schema, file_name: str) -> tuple[str, str]:
    def is_image(kind: pa.DataType) -> bool:
        if pa.types.is_struct(kind):
            return kind.get_field_index("bytes") >= 0 and is_image(kind.field("bytes").type)
        return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)

    images = [field.name for field in schema if is_image(field.type)]
    labels = [field.name for field in schema if pa.types.is_integer(field.type) or pa.types.is_string(field.type)]
    image = next((name for name in _IMAGE_COLUMNS if name in images), images[0] if len(images) == 1 else None)
    label = next((name for name in _LABEL_COLUMNS if name in labels), labels[0] if len(labels) == 1 else None)
    if image is None or label is None:
        raise UserError(
            f"{file_name} has the columns {', '.join(schema.names)}; needed are image (bytes, or a struct "
            "with bytes) and label (a number or a name)"
        )
    return image, label


def _declared_classes(schema: pa.Schema, label: str) -> list[str]:
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return [str(name) for name in features[label]["names"]]
    except (KeyError, TypeError, ValueError):  # not from the hub, or labels that are plain numbers
        return []
