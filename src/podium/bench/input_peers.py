"""The other input pipelines of `bench input`, each written as its users would, and given every advantage that keeps
the work the same: the files are in memory, nothing is flipped, and where a pipeline takes boxes they are drawn
beforehand. A peer that is not installed is named, not replaced. Nothing of Podium runs here.
"""

import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from PIL import Image

Turn = Callable[[], int]
"""Goes through the whole workload and gives the number of images."""

FileAndBox = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Workload:
    """What one turn has to do: the batches that Podium's loader draws, as files and boxes."""

    files: list[list[np.ndarray]]
    """Per batch, JPEG files as uint8 [bytes]."""
    boxes: list[np.ndarray]
    """Per batch, int32 [n, 4]: x, y, width, height."""
    min_area: float
    """For a peer that draws boxes of its own: area [min_area, 1] of the image, aspect ratio [3/4, 4/3]."""
    image_size: int
    threads: int

    @property
    def images(self) -> int:
        return sum(map(len, self.files))


@dataclass(frozen=True)
class Peer:
    label: str
    package: str
    """The package's name for pip."""
    make: Callable[[Workload], Turn]
    """Raises ImportError where the package is not installed."""


def build(work: Workload) -> tuple[dict[str, Turn], list[str]]:
    """The peers that are installed, and the names of those that are not."""
    built, missing = {}, []
    for name, peer in PEERS.items():
        try:
            built[name] = peer.make(work)
        except ImportError:
            missing.append(name)
    return built, missing


def _tfdata(work: Workload, *, same_quality: bool) -> Turn:
    """As people use it: a quick DCT, and a resize that leaves pixels out. Or as accurate as the others."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # else it tells of the GPU that it does not find
    import tensorflow as tf

    dct = "INTEGER_ACCURATE" if same_quality else ""

    def one(jpeg: "tf.Tensor", window: "tf.Tensor") -> "tf.Tensor":
        crop = tf.image.decode_and_crop_jpeg(jpeg, window, channels=3, dct_method=dct)
        small = tf.image.resize(crop, [work.image_size] * 2, antialias=same_quality)
        # As uint8, like all the others: float32 batches are four times as large, and tf.data is then 20 % slower.
        return tf.cast(small, tf.uint8)

    jpegs = tf.constant([file.tobytes() for files in work.files for file in files])
    windows = np.concatenate(work.boxes)[:, [1, 0, 3, 2]]
    data = tf.data.Dataset.from_tensor_slices((jpegs, windows))
    data = data.map(one, num_parallel_calls=work.threads, deterministic=False)
    data = data.batch(len(work.files[0])).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = work.threads
    options.threading.max_intra_op_parallelism = 1
    data = data.with_options(options)

    def turn() -> int:
        return sum(int(batch.shape[0]) for batch in data)

    return turn


def _dali(work: Workload) -> Turn:
    from nvidia.dali import fn, pipeline_def, types

    class Batches:
        def __iter__(self) -> Iterator[list[np.ndarray]]:
            return iter(work.files)

    @pipeline_def(
        batch_size=len(work.files[0]), num_threads=work.threads, device_id=None, prefetch_queue_depth=2, seed=0
    )
    def define() -> object:
        # The end of the source ends a turn, so that nothing is decoded ahead in another's turn.
        jpegs = fn.external_source(source=Batches(), cycle="raise", no_copy=True)
        crops = fn.decoders.image_random_crop(
            jpegs, random_area=[work.min_area, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10
        )
        return fn.resize(
            crops, resize_x=work.image_size, resize_y=work.image_size, interp_type=types.INTERP_LINEAR, antialias=True
        )

    pipeline = define()
    pipeline.build()

    def turn() -> int:
        images = 0
        try:
            while True:
                images += len(pipeline.run()[0])
        except StopIteration:
            pipeline.reset()
        return images

    return turn


def _pillow(work: Workload) -> Turn:
    pool = ThreadPoolExecutor(work.threads, thread_name_prefix="bench-pillow")
    size = work.image_size
    out = np.empty((max(map(len, work.files)), size, size, 3), np.uint8)

    def one(at: int, jpeg: np.ndarray, box: np.ndarray) -> None:
        x, y, width, height = box.tolist()
        with Image.open(io.BytesIO(jpeg.tobytes())) as image:
            rgb = image.convert("RGB")
        out[at] = np.asarray(rgb.resize((size, size), Image.Resampling.BILINEAR, (x, y, x + width, y + height)))

    def turn() -> int:
        for files, boxes in zip(work.files, work.boxes, strict=True):
            list(pool.map(one, range(len(files)), files, boxes))
        return work.images

    return turn


def _opencv(work: Workload) -> Turn:
    one = _opencv_crop(work.image_size)
    pool = ThreadPoolExecutor(work.threads, thread_name_prefix="bench-opencv")

    def turn() -> int:
        images = 0
        for batch in zip(work.files, work.boxes, strict=True):
            images += len(np.stack(list(pool.map(one, zip(*batch, strict=True)))))
        return images

    return turn


def _opencv_crop(size: int) -> Callable[[FileAndBox], np.ndarray]:
    import cv2

    cv2.setNumThreads(1)  # one image a thread: its own would be more than were given

    def one(item: FileAndBox) -> np.ndarray:
        jpeg, (x, y, width, height) = item
        whole = cv2.imdecode(jpeg, cv2.IMREAD_COLOR_RGB)
        assert whole is not None
        return cv2.resize(whole[y : y + height, x : x + width], (size, size), interpolation=cv2.INTER_LINEAR)

    return one


def _grain(work: Workload) -> Turn:
    """Grain has no decoder of its own; here it has the quickest of Python's."""
    import grain

    one = _opencv_crop(work.image_size)
    items = [item for batch in zip(work.files, work.boxes, strict=True) for item in zip(*batch, strict=True)]
    reading = grain.ReadOptions(num_threads=work.threads, prefetch_buffer_size=2 * len(work.files[0]))
    data = grain.MapDataset.source(items).map(one).to_iter_dataset(reading).batch(len(work.files[0]))

    def turn() -> int:
        return sum(len(batch) for batch in data)

    return turn


def _spdl(work: Workload) -> Turn:
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    def one(item: FileAndBox) -> "spdl.io.ImageFrames":
        jpeg, (x, y, width, height) = item
        scale = f"scale={work.image_size}:{work.image_size}:flags=bilinear"
        filters = f"crop={width}:{height}:{x}:{y}:exact=1,{scale},format=rgb24"
        return spdl.io.decode_packets(spdl.io.demux_image(jpeg.tobytes()), filter_desc=filters)

    def together(frames: "list[spdl.io.ImageFrames]") -> np.ndarray:
        return spdl.io.to_numpy(spdl.io.convert_frames(frames))

    items = [item for batch in zip(work.files, work.boxes, strict=True) for item in zip(*batch, strict=True)]
    try:
        one(items[0])
    except RuntimeError as error:  # SPDL is there, but none of the FFmpeg libraries that it looks for
        raise ImportError(str(error)) from error

    def turn() -> int:
        stages = PipelineBuilder().add_source(items).pipe(one, concurrency=work.threads)
        stages = stages.aggregate(len(work.files[0])).pipe(together).add_sink(2)
        pipeline = stages.build(num_threads=work.threads)
        with pipeline.auto_stop():
            return sum(len(batch) for batch in pipeline)

    return turn


PEERS = {
    "tfdata": Peer("tf.data, as people use it", "tensorflow-cpu", partial(_tfdata, same_quality=False)),
    "tfdata_same": Peer("tf.data, accurate and antialiased", "tensorflow-cpu", partial(_tfdata, same_quality=True)),
    "dali": Peer("DALI, CPU, antialiased", "nvidia-dali-cuda120", _dali),
    "opencv": Peer("OpenCV, thread pool", "opencv-python-headless", _opencv),
    "grain": Peer("Grain, OpenCV decodes", "grain", _grain),
    "spdl": Peer("SPDL", "spdl", _spdl),
    "pillow": Peer("Pillow, thread pool, antialiased", "pillow", _pillow),
}
