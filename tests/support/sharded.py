"""The images of a prepared directory in more shards, as a large data set has them."""

from pathlib import Path

from podium.data.dataset.manifest import Shard, write_manifest
from podium.data.dataset.shards import ImageSet, Row, ShardWriter, shard_name


def in_shards(source: Path, directory: Path, **shards: int) -> Path:
    """`directory` with the images of `source`, each split in so many shards."""
    directory.mkdir()
    splits: dict[str, list[Shard]] = {}
    for split, count in shards.items():
        images, splits[split] = ImageSet.open(source, split), []
        for number in range(count):
            with ShardWriter.open(directory / shard_name(split, number, count)) as writer:
                for i in range(len(images) * number // count, len(images) * (number + 1) // count):
                    index = images.indexes[i].tobytes() or None
                    width, height = images.sizes[i].tolist()
                    writer.add(
                        Row(images.image(i).tobytes(), int(images.labels[i]), width, height, images.name(i), index)
                    )
            splits[split].append(writer.shard)
    write_manifest(directory, images.classes, splits, plan="test")
    return directory
