"""Batches from image files as people have them, for predictions: read, and re-encoded where they are no plain JPEGs,
by a pool of threads, then decoded like the images of an evaluation. A file that cannot be used is noted, and nothing
ends because of it.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from podium.data import decode
from podium.data.dataset.jpeg import BadImage, Trainable, trainable_jpeg
from podium.data.input.augment import eval_crops
from podium.data.input.buffers import BatchMemory
from podium.data.input.loader import HostBatch, thread_count
from podium.recipe.batch import eval_batch
from podium.recipe.images import Data


class FileLoader:
    """Fills batches of `batch_global` files each; the label is the file's number, −1 where there is none. Use it in a
    `with`, so that its threads end."""

    def __init__(self, files: Sequence[Path], data: Data, batch_global: int) -> None:
        self.files, self.data, self.batch_global = files, data, batch_global
        self.batches = -(-len(files) // batch_global)
        self.failed: dict[int, str] = {}
        """By the file's number, why it cannot be used."""
        self._memory = BatchMemory()
        self._pool = ThreadPoolExecutor(thread_count(data), thread_name_prefix="podium-files")

    def new_batch(self, index: int = 0) -> HostBatch:
        return {name: self._memory.empty(*part) for name, part in eval_batch(self.data, self.batch_global).items()}

    def fill(self, batch: HostBatch, index: int) -> None:
        first = index * self.batch_global
        numbers = range(first, min(first + self.batch_global, len(self.files)))
        read = dict(zip(numbers, self._pool.map(_read, [self.files[n] for n in numbers]), strict=True))
        self.failed |= {n: found for n, found in read.items() if isinstance(found, str)}
        good = {n: found for n, found in read.items() if not isinstance(found, str)}
        batch["image"][len(good) :] = 0
        batch["label"][:] = -1
        if not good:
            return
        crops = eval_crops(self.data, np.array([(found.width, found.height) for found in good.values()]))
        statuses = decode.decode_batch(
            [found.jpeg for found in good.values()],
            crops.boxes,
            crops.flips,
            out=batch["image"][: len(good)],
            threads=thread_count(self.data),
        )
        for row, (number, status) in enumerate(zip(good, statuses, strict=True)):
            if status:
                self.failed[number] = decode.status_message(status)
            else:
                batch["label"][row] = number

    def __enter__(self) -> "FileLoader":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)


def _read(file: Path) -> Trainable | str:
    """The image, or why it cannot be used."""
    try:
        return trainable_jpeg(file.read_bytes())
    except BadImage as bad:
        return str(bad)
    except OSError as error:
        return error.strerror or str(error)
