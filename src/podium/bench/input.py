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
from rich.console import Console
from rich.table import Table

from podium.bench import input_peers, timing
from podium.bench.input_peers import Turn, Workload
from podium.data import decode
from podium.data.dataset.shards import ImageSet
from podium.data.input.augment import train_crops
from podium.data.input.loader import TrainLoader
from podium.data.input.prefetch import Feed
from podium.data.prepare.locate import locate
from podium.errors import UserError
from podium.mesh import batch_sharding, build_mesh, find_devices
from podium.recipe.reading import from_dict
from podium.recipe.torus import lay_out
from podium.report.terminal import Terminal

BATCH = 128
BATCHES_PER_TURN = 4  # about a third of a second on two cores, short beside a machine's moods
_LABELS = {
    "podium": "Podium, JPEG bytes cached",
    "podium_pixels": "Podium, pixels cached",
    "tfdata": "tf.data, decode_and_crop_jpeg",
    "dali": "DALI, CPU, antialiased",
    "pillow": "Pillow, thread pool",
}
_PACKAGES = {"tfdata": "tensorflow-cpu", "dali": "nvidia-dali-cuda120", "pillow": "pillow"}


def run(
    data: str | None,
    threads: tuple[int, ...],
    rounds: int,
    image_size: int = 224,
    memory_images: int = 0,
) -> dict[str, Any]:
    """Images per second of every pipeline at each thread count, Podium's ratio to each peer, the feed's share of the
    decoder's rate, and the memory over `memory_images`. `data` is a prepared directory or any source; None is the
    demo."""
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
    terminal = Terminal(quiet=True)
    images = ImageSet.open(locate(data, say=terminal.note, progress=terminal.preparing), "train")
    result: dict[str, Any] = {key: {} for key in ("threads", "ratios", "spread", "feed")}
    for count in threads:
        rates, missing = _rates(images, count, rounds, image_size)
        peers = [name for name in _PACKAGES if name not in missing]
        spreads = {name: timing.spread(rates[name]) for name in rates}
        key = str(count)
        result["threads"][key] = {name: spreads[name]["median"] for name in ("podium", "podium_pixels", *peers)}
        result["spread"][key] = {name: spreads[name] for name in ("podium", "podium_pixels", *peers)}
        result["ratios"][key] = {
            peer: {name: timing.ratios(rates, name, peer) for name in ("podium", "podium_pixels")} for peer in peers
        }
        result["feed"][key] = {
            "feed": spreads["feed"],
            "decoder": spreads["decoder"],
            "share": timing.ratios(rates, "feed", "decoder"),
        }
    shape = {"rounds": rounds, "batch": BATCH, "batches_per_turn": BATCHES_PER_TURN, "image_size": image_size}
    about = {"images": len(images), "content_hash": images.content_hash, "decoder": decode.backend()}
    if memory_images:
        result["memory"] = memory(images, memory_images, max(threads), image_size)
    versions = timing.machine("jax", "numpy", *(_PACKAGES[peer] for peer in peers))
    return {**result, "missing": missing, "turns": shape, "data": about, "machine": versions}


def memory(images: ImageSet, images_total: int, threads: int, image_size: int) -> dict[str, Any]:
    """Resident memory after a fifth, three fifths and all of `images_total` images reached a device; bytes cached."""
    loader = _loader(images, "bytes", threads, image_size)
    steps = -(-images_total // BATCH)
    marks = {-(-steps * fifths // 5) for fifths in (1, 3, 5)}
    process, resident_mb = psutil.Process(), {}
    with Feed(loader, range(steps), _sharding(), BATCH) as feed:
        for step, batch in enumerate(feed, start=1):
            jax.block_until_ready(batch)
            if step in marks:
                resident_mb[str(step * BATCH)] = round(process.memory_info().rss / 1e6, 1)
    loader.cache.close()
    first, *_, last = resident_mb.values()
    return {"resident_mb": resident_mb, "growth_mb": round(last - first, 1), "images": steps * BATCH}


def show(result: dict[str, Any], console: Console) -> None:
    """The result as a table for a person."""
    counts = list(result["threads"])
    table = Table(title=f"images/s to {result['turns']['image_size']} px: median (least – most)")
    table.add_column("pipeline")
    for count in counts:
        table.add_column(f"{count} thread{'s' if count != '1' else ''}", justify="right")
        table.add_column("Podium is", justify="right")
    for name in result["threads"][counts[0]]:
        cells = []
        for count in counts:
            rate = result["spread"][count][name]
            ratio = result["ratios"][count].get(name)
            cells.append(f"{rate['median']:,.0f} ({rate['least']:,.0f} – {rate['most']:,.0f})")
            cells.append(f"{ratio['podium']['median']:.2f} ×" if ratio else "")
        table.add_row(_LABELS[name], *cells)
    console.print(table)
    for count in counts:
        share = result["feed"][count]["share"]["median"]
        console.print(f"{count} threads: batches reach the device at {share:.1%} of the decoder's own rate")
    if "memory" in result:
        marks = ", ".join(f"{mb:,.0f} MB after {int(n):,}" for n, mb in result["memory"]["resident_mb"].items())
        console.print(f"resident memory: {marks} images")
    for name in result["missing"]:
        console.print(f"{_LABELS[name]}: not installed, left out; make install EXTRAS=bench brings it")


def _rates(images: ImageSet, threads: int, rounds: int, image_size: int) -> tuple[dict[str, list[float]], list[str]]:
    """The rates of all, taking turns, and the peers that are missing."""
    loaders = {level: _loader(images, level, threads, image_size) for level in ("bytes", "pixels")}
    work, flips = _workload(loaders["bytes"])
    peers, missing = input_peers.build(work)
    turns = {
        "podium": _podium(loaders["bytes"]),
        "podium_pixels": _podium(loaders["pixels"]),
        **peers,
        "feed": _feed(loaders["bytes"]),
        "decoder": _decoder(work, flips),
    }
    rates = timing.alternate(turns, rounds)
    for loader in loaders.values():
        loader.cache.close()
    return rates, missing


def _loader(images: ImageSet, cache: str, threads: int, image_size: int) -> TrainLoader:
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
    crops = [train_crops(recipe.data, recipe.seed, epochs, s, images.sizes[s]) for s, epochs in drawn]
    files = [[images.image(int(sample)).copy() for sample in samples] for samples, _ in drawn]
    boxes = [c.boxes for c in crops]
    work = Workload(files, boxes, recipe.data.min_area, recipe.data.image_size, recipe.data.threads)
    return work, [c.flips for c in crops]


def _podium(loader: TrainLoader) -> Turn:
    batch = loader.new_batch()

    def turn() -> int:
        for step in range(BATCHES_PER_TURN):
            loader.fill(batch, step)
        return BATCHES_PER_TURN * BATCH

    return turn


def _feed(loader: TrainLoader) -> Turn:
    sharding = _sharding()

    def turn() -> int:
        with Feed(loader, range(BATCHES_PER_TURN), sharding, BATCH) as feed:
            for batch in feed:
                jax.block_until_ready(batch)
        return BATCHES_PER_TURN * BATCH

    return turn


def _decoder(work: Workload, flips: list[np.ndarray]) -> Turn:
    out = np.empty((BATCH, work.image_size, work.image_size, 3), np.uint8)

    def turn() -> int:
        for files, boxes, flip in zip(work.files, work.boxes, flips, strict=True):
            decode.decode_batch(files, boxes, flip, out, work.threads)
        return work.images

    return turn


def _sharding() -> NamedSharding:
    """One chip, as the training batches of a 1×1 torus are laid out."""
    shape, devices = find_devices("1x1")
    return batch_sharding(build_mesh(lay_out(shape, BATCH, BATCH), devices), leading=1)
