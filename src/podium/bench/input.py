"""How fast do images reach the device, beside the pipelines that others use? Podium's side is the loader of training:
order → crops → cache → decoder. All take turns on the same files and crop distribution in one run. Two more
figures come from the same loader: its share of the decoder's own rate when it feeds a device, and its memory over
many images.
"""

from typing import Any

import jax
import numpy as np
import psutil
from jax.sharding import NamedSharding

from podium.bench import input_peers, timing
from podium.bench.input_peers import PEERS, Turn, Workload
from podium.data import decode
from podium.data.dataset.manifest import read_manifest
from podium.data.dataset.shards import ImageSet
from podium.data.input.augment import train_crops
from podium.data.input.cache import Cache
from podium.data.input.loader import TrainLoader
from podium.data.input.prefetch import Feed
from podium.data.prepare.locate import locate
from podium.data.prepare_options import PrepareOptions
from podium.errors import UserError
from podium.mesh import batch_sharding, build_mesh, find_devices
from podium.recipe.reading import from_dict
from podium.recipe.torus import lay_out
from podium.report.terminal import Terminal

BATCH = 128
BATCHES_PER_TURN = 4  # about a third of a second on two cores, short beside a machine's moods
OURS = {
    "podium": "Podium, JPEG bytes cached",
    "podium_whole": "Podium, the same without seek indexes",
    "podium_pixels": "Podium, pixels cached",
}


def run(
    data: str | None,
    threads: tuple[int, ...],
    rounds: int,
    *,
    image_size: int = 224,
    memory_images: int = 0,
) -> dict[str, Any]:
    """Images per second of every pipeline at each thread count, Podium's ratio to each peer, the feed's share of the
    decoder's rate, and the memory over `memory_images`. `data` is a prepared directory or any source; None is the
    demo."""
    _check(threads, rounds, memory_images)
    images = _open(data)
    result: dict[str, Any] = {key: {} for key in ("threads", "ratios", "spread", "feed")}
    for count in threads:
        rates, missing = _rates(images, count, rounds, image_size=image_size)
        for part, figures in _figures(rates).items():
            result[part][str(count)] = figures
    if memory_images:
        result["memory"] = memory(images, memory_images, max(threads), image_size=image_size)
    packages = {peer.package for name, peer in PEERS.items() if name not in missing}
    return {
        **result,
        "missing": missing,
        "turns": {"rounds": rounds, "batch": BATCH, "batches_per_turn": BATCHES_PER_TURN, "image_size": image_size},
        "data": _about(images),
        "machine": timing.machine("jax", "numpy", *sorted(packages)),
    }


def _check(threads: tuple[int, ...], rounds: int, memory_images: int) -> None:
    for count in threads:
        if count < 1:
            raise UserError(f"threads={count}; a pipeline needs 1 or more, for example --threads 1 2")
    if not threads or rounds < 1:
        raise UserError(f"threads={list(threads)}, rounds={rounds}; give at least one thread count and one round")
    if memory_images and memory_images <= BATCH:
        raise UserError(
            f"memory_images={memory_images}; growth shows over more than {BATCH}, a batch: for example "
            f"--memory-images 100000, or leave it out"
        )


def _open(data: str | None) -> ImageSet:
    """The training images, or whatever split there is; nothing is held out, since nothing is trained."""
    terminal = Terminal(quiet=True)
    directory = locate(data, PrepareOptions(), say=terminal.note, progress=terminal.preparing)
    splits = read_manifest(directory).splits
    return ImageSet.open(directory, "train" if "train" in splits else next(iter(splits)))


def _about(images: ImageSet) -> dict[str, Any]:
    every = np.arange(len(images))
    stored = int(images.images.buffers(every).sizes.sum())
    indexes = int(images.indexes.buffers(every).sizes.sum())
    return {
        "images": len(images),
        "content_hash": images.content_hash,
        "decoder": decode.backend(),
        "mean_bytes": round(stored / len(images)),
        "index_share": round(indexes / stored, 4),
    }


def _figures(rates: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    spreads = {name: timing.spread(rates[name]) for name in rates}
    measured = [name for name in rates if name in OURS or name in PEERS]
    return {
        "threads": {name: spreads[name]["median"] for name in measured},
        "spread": {name: spreads[name] for name in measured},
        "ratios": {
            peer: {name: timing.ratios(rates, name, peer) for name in OURS} for peer in measured if peer in PEERS
        },
        "feed": {
            "feed": spreads["feed"],
            "decoder": spreads["decoder"],
            "share": timing.ratios(rates, "feed", "decoder"),
        },
    }


def memory(images: ImageSet, images_total: int, threads: int, *, image_size: int) -> dict[str, Any]:
    """Resident memory after a fifth, three fifths and all of `images_total` images reached a device; bytes cached."""
    loader = _loader(images, "bytes", threads, image_size=image_size)
    steps = -(-images_total // BATCH)
    marks = {-(-steps * fifths // 5) for fifths in (1, 3, 5)}
    process, resident_mb = psutil.Process(), {}
    with Feed(loader, range(steps), _sharding(), batch_global=BATCH) as feed:
        for step, batch in enumerate(feed, start=1):
            jax.block_until_ready(batch)
            if step in marks:
                resident_mb[str(step * BATCH)] = round(process.memory_info().rss / 1e6, 1)
    loader.cache.close()
    first, *_, last = resident_mb.values()
    return {"resident_mb": resident_mb, "growth_mb": round(last - first, 1), "images": steps * BATCH}


def _rates(images: ImageSet, threads: int, rounds: int, *, image_size: int) -> tuple[dict[str, list[float]], list[str]]:
    """The rates of all, taking turns, and the peers that are missing."""
    seeking, pixels, whole = (
        _loader(images, level, threads, image_size=image_size) for level in ("bytes", "pixels", "bytes")
    )
    whole.cache = Cache(images, "bytes", threads, seek=False)
    work, flips = _workload(seeking)
    peers, missing = input_peers.build(work)
    turns = {
        "podium": _podium(seeking),
        "podium_whole": _podium(whole),
        "podium_pixels": _podium(pixels),
        **peers,
        "feed": _feed(seeking),
        "decoder": _decoder(work, flips),
    }
    rates = timing.alternate(turns, rounds)
    for loader in (seeking, pixels, whole):
        loader.close()
    return rates, missing


def _loader(images: ImageSet, cache: str, threads: int, *, image_size: int) -> TrainLoader:
    recipe = from_dict(
        {
            "epochs": 1,
            "batch_global": BATCH,
            "data": {"image_size": image_size, "threads": threads, "cache": cache},
            "model": {"norm_span": BATCH},
            "optimizer": {"name": "sgd", "learning_rate": 0.1},
            "schedule": {"decay": "cosine", "warmup_epochs": 0},
        }
    )
    return TrainLoader(images, recipe, np.arange(BATCH))


def _workload(loader: TrainLoader) -> tuple[Workload, list[np.ndarray]]:
    """What the loader will draw in a turn, and its flips, which no peer has to do."""
    images, recipe = loader.images, loader.recipe
    drawn = [loader.order.batch(step) for step in range(BATCHES_PER_TURN)]
    crops = [train_crops(recipe.data, recipe.seed, epochs, samples=s, sizes=images.sizes[s]) for s, epochs in drawn]
    files = [[images.image(int(sample)).copy() for sample in samples] for samples, _ in drawn]
    boxes = [c.boxes for c in crops]
    work = Workload(files, boxes, recipe.data.min_area, recipe.data.image_size, recipe.data.threads)
    return work, [c.flips for c in crops]


def _podium(loader: TrainLoader) -> Turn:
    batch = loader.new_batch()

    def turn() -> int:
        loader.draws.forget()  # every turn draws the same steps: it shall not find them drawn
        for step in range(BATCHES_PER_TURN):
            loader.fill(batch, step)
        return BATCHES_PER_TURN * BATCH

    return turn


def _feed(loader: TrainLoader) -> Turn:
    sharding = _sharding()

    def turn() -> int:
        loader.draws.forget()
        with Feed(loader, range(BATCHES_PER_TURN), sharding, batch_global=BATCH) as feed:
            for batch in feed:
                jax.block_until_ready(batch)
        return BATCHES_PER_TURN * BATCH

    return turn


def _decoder(work: Workload, flips: list[np.ndarray]) -> Turn:
    """The decoder alone, with indexes, on addresses and boxes that are known beforehand."""
    out = np.empty((BATCH, work.image_size, work.image_size, 3), np.uint8)
    indexes = [[_index(file) for file in files] for files in work.files]
    places = [(decode.Buffers.of(f), decode.Buffers.of(i)) for f, i in zip(work.files, indexes, strict=True)]

    def turn() -> int:
        for (files, index), boxes, flip in zip(places, work.boxes, flips, strict=True):
            decode.decode_batch(files, boxes, flip, out=out, threads=work.threads, indexes=index)
        return work.images if indexes else 0  # the byte strings stay as long as their addresses are used

    return turn


def _index(file: np.ndarray) -> bytes | None:
    try:
        return decode.build_index(file)
    except decode.DecodeError:
        return None


def _sharding() -> NamedSharding:
    """One chip, as the training batches of a 1×1 torus are laid out."""
    shape, devices = find_devices("1x1")
    return batch_sharding(build_mesh(lay_out(shape, BATCH, BATCH), devices), leading=1)
