"""One small data set, and the same images in every format that `podium prepare` reads. TFRecords are written
by tensorboardX and protobuf, which know nothing of Podium's reader."""

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from PIL import Image
from tensorboardX.record_writer import RecordWriter

CLASSES = ("cat", "dog", "owl")


@dataclass(frozen=True)
class Made:
    split: str
    number: int
    file: str
    image: bytes

    @property
    def class_name(self) -> str:
        return CLASSES[self.number]


def jpeg(seed: int, size: tuple[int, int] = (24, 16), mode: str = "RGB", **options: Any) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 4), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels, "RGBA").convert(mode).save(out, options.pop("format", "JPEG"), **options)
    return out.getvalue()


def undecodable_jpeg(size: tuple[int, int] = (200, 200)) -> bytes:
    """Sound by its markers, but its scan asks for Huffman tables that are not there."""
    image = bytearray(jpeg(1, size))
    image[image.index(b"\xff\xda") + 6] = 0x33
    return bytes(image)


@cache
def made() -> tuple[Made, ...]:
    images = []
    for seed in range(30):
        split, number = ("validation" if seed % 5 == 0 else "train"), seed % 3
        picture = jpeg(seed, (8 + seed, 40 - seed), "L" if seed == 7 else "RGB", progressive=seed == 8)
        images.append(Made(split, number, f"{seed:02d}.jpg", picture))
    return tuple(images)


def test_data() -> Path | None:
    """Where the real images are, if they are."""
    place = Path(os.environ.get("PODIUM_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
    return place if place.is_dir() else None


test_data.__test__ = False  # type: ignore[attr-defined]


def _by_split() -> Iterator[tuple[str, list[Made]]]:
    for split in ("train", "validation"):
        yield split, [image for image in made() if image.split == split]


def tar_bytes(members: dict[str, bytes], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def folder_files(top: str = "") -> dict[str, bytes]:
    short = {"train": "train", "validation": "val"}
    return {f"{top}{short[m.split]}/{m.class_name}/{m.file}": m.image for m in made()}


def webdataset_files(label: Callable[[Made], dict[str, bytes]]) -> dict[str, bytes]:
    files = {}
    for split, images in _by_split():
        half = len(images) // 2
        for shard, part in enumerate((images[:half], images[half:])):
            members = {}
            for image in part:
                key = f"{split}_{image.file.removesuffix('.jpg')}"
                members[f"{key}.jpg"] = image.image
                members |= {f"{key}.{ending}": content for ending, content in label(image).items()}
            files[f"toy-{split}-{shard:06d}.tar"] = tar_bytes(members)
    return files


@cache
def _example_class() -> Any:
    """tf.train.Example, as its .proto file has it."""
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> Any:
        built = file.message_type.add(name=name)
        for field, number, label, kind, type_name in fields:
            built.field.add(name=field, number=number, label=label, type=kind, type_name=type_name or None)
        return built

    one, many, sub = types.LABEL_OPTIONAL, types.LABEL_REPEATED, types.TYPE_MESSAGE
    message("BytesList", ("value", 1, many, types.TYPE_BYTES, ""))
    message("FloatList", ("value", 1, many, types.TYPE_FLOAT, ""))
    message("Int64List", ("value", 1, many, types.TYPE_INT64, ""))
    lists = ("bytes_list", 1, "BytesList"), ("float_list", 2, "FloatList"), ("int64_list", 3, "Int64List")
    message("Feature", *((name, number, one, sub, f".tensorflow.{kind}") for name, number, kind in lists))
    features = message("Features", ("feature", 1, many, sub, ".tensorflow.Features.FeatureEntry"))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=one, type=types.TYPE_STRING)
    entry.field.add(name="value", number=2, label=one, type=sub, type_name=".tensorflow.Feature")
    message("Example", ("features", 1, one, sub, ".tensorflow.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def example(features: dict[str, bytes | int | list[int] | list[float]]) -> bytes:
    built = _example_class()()
    for name, value in features.items():
        feature = built.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        elif isinstance(value, list) and value and isinstance(value[0], float):
            feature.float_list.value.extend(value)
        else:
            feature.int64_list.value.extend([value] if isinstance(value, int) else value)
    return built.SerializeToString()


def tfrecord_bytes(examples: list[bytes], path: Path) -> bytes:
    writer = RecordWriter(str(path))
    for serialized in examples:
        writer.write(serialized)
    writer.close()
    return path.read_bytes()


def tfrecord_files(scratch: Path, first: int = 1, names: bool = True) -> dict[str, bytes]:
    files = {}
    for split, images in _by_split():
        examples = []
        for image in images:
            features: dict[str, Any] = {
                "image/encoded": image.image,
                "image/class/label": image.number + first,
                "image/filename": image.file.encode(),
                "image/object/bbox/xmin": [0.25, 0.5],
                "image/height": 5,
            }
            if names:
                features["image/class/synset"] = image.class_name.encode()
            examples.append(example(features))
        files[f"{split}-00000-of-00001"] = tfrecord_bytes(examples, scratch / "records")
    return files


def parquet_bytes(images: list[Made], names: bool = True, column: str = "image") -> bytes:
    features: dict[str, Any] = {
        column: {"_type": "Image"},
        "label": {"_type": "ClassLabel", "names": list(CLASSES)},
    }
    values = [{"bytes": m.image, "path": m.file} for m in images]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    labels = pa.array([m.number for m in images], pa.int64())
    table = pa.table({column: pa.array(values, kind), "label": labels})
    if names:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=7)
    return out.getvalue()


def parquet_files() -> dict[str, bytes]:
    return {f"data/{split}-00000-of-00001.parquet": parquet_bytes(images) for split, images in _by_split()}


NAMED, NUMBERED = CLASSES, ("0", "1", "2")

SOURCES: dict[str, tuple[Callable[[Path], dict[str, bytes]], str, tuple[str, ...]]] = {
    # name: (its files, the kind it is found to be, the class names it tells)
    "folder": (lambda scratch: folder_files(), "folder", NAMED),
    "folder in a folder": (lambda scratch: folder_files("toys/v1/"), "folder", NAMED),
    "tar": (lambda scratch: {"toys.tar": tar_bytes(folder_files("toys/"))}, "tar", NAMED),
    "tar with ./": (lambda scratch: {"toys.tar": tar_bytes(folder_files("./"))}, "tar", NAMED),
    "tar.gz": (lambda scratch: {"toys.tar.gz": tar_bytes(folder_files(), "w:gz")}, "tar", NAMED),
    "tar.xz": (lambda scratch: {"toys.tar.xz": tar_bytes(folder_files(), "w:xz")}, "tar", NAMED),
    "webdataset cls": (
        lambda scratch: webdataset_files(lambda m: {"cls": str(m.number).encode()}),
        "webdataset",
        NUMBERED,
    ),
    "webdataset cls name": (
        lambda scratch: webdataset_files(lambda m: {"cls": f"{m.class_name}\n".encode()}),
        "webdataset",
        NAMED,
    ),
    "webdataset json": (
        lambda scratch: webdataset_files(lambda m: {"json": json.dumps({"label": m.number}).encode()}),
        "webdataset",
        NUMBERED,
    ),
    "tfrecord": (lambda scratch: tfrecord_files(scratch), "tfrecord", NAMED),
    "tfrecord from 0": (lambda scratch: tfrecord_files(scratch, first=0), "tfrecord", NAMED),
    "tfrecord no names": (lambda scratch: tfrecord_files(scratch, names=False), "tfrecord", ("1", "2", "3")),
    "parquet": (lambda scratch: parquet_files(), "parquet", NAMED),
}


def write_files(root: str, files: dict[str, bytes]) -> None:
    """Into a local folder, or below an fsspec URL."""
    system, base = fsspec.core.url_to_fs(root)
    for name, content in files.items():
        path = f"{base}/{name}"
        system.makedirs(path.rpartition("/")[0], exist_ok=True)
        system.pipe_file(path, content)
