"""Host batches and the feed: the right images with their labels, whatever the cache, the hosts and the broken files."""

import threading

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.made_sources import jpeg

from podium.data import decode
from podium.data.dataset.manifest import write_manifest
from podium.data.dataset.shards import ImageSet, write_split
from podium.data.input.augment import train_crops
from podium.data.input.cache import Cache, choose_level
from podium.data.input.loader import EvalLoader, TrainLoader
from podium.data.input.order import Order
from podium.data.input.prefetch import Feed, local_rows, placed, to_devices
from podium.data.input.share import runs
from podium.errors import UserError
from podium.mesh import batch_sharding, build_mesh
from podium.recipe.reading import from_dict
from podium.recipe.torus import Shape, lay_out, valid_spans


def small_recipe(**data):
    return from_dict({
        "epochs": 2, "batch_global": 16, "seed": 5, "steps_per_dispatch": 2,
        "data": {"image_size": 24, "cache": "bytes", "threads": 2, **data},
        "model": {"norm_span": 4, "name": "resnet8", "stem": "conv3"},
        "optimizer": {"name": "sgd", "learning_rate": 0.1}, "schedule": {"decay": "cosine", "warmup_epochs": 0},
    })  # fmt: skip


def filled(loader, index):
    batch = loader.new_batch()
    for array in batch.values():
        array.fill(99)
    loader.fill(batch, index)
    return batch


def test_a_batch_is_what_order_crops_and_decoder_say(small_data):
    images, r = ImageSet.open(small_data, "train"), small_recipe(colour_jitter=0.3)
    batch = filled(TrainLoader(images, r, np.arange(16)), 6)
    for i in range(2):
        samples, epochs = Order(len(images), 16, r.seed).batch(6 + i)
        crops = train_crops(r.data, r.seed, epochs, samples=samples, sizes=images.sizes[samples])
        out = np.empty((16, 24, 24, 3), np.uint8)
        assert not decode.decode_batch(
            [images.image(s) for s in samples], crops.boxes, crops.flips, out=out, threads=1
        ).any()
        np.testing.assert_array_equal(batch["image"][i], out)
        np.testing.assert_array_equal(batch["label"][i], images.labels[samples])
        np.testing.assert_array_equal(batch["colour"][i], crops.colours)


def test_every_cache_level_gives_the_same_bits(small_data):
    images = ImageSet.open(small_data, "train")
    by_level = {
        level: TrainLoader(images, small_recipe(cache=level), np.arange(16)) for level in ("none", "bytes", "pixels")
    }
    for index in (0, 2, 0):  # the third comes from the cache
        want = filled(by_level["none"], index)
        for loader in by_level.values():
            np.testing.assert_array_equal(filled(loader, index)["image"], want["image"])


@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_together_fill_the_same_global_batch(small_data, hosts):
    images, r = ImageSet.open(small_data, "train"), small_recipe()
    whole = filled(TrainLoader(images, r, np.arange(16)), 4)
    parts = [filled(TrainLoader(images, r, rows), 4) for rows in np.array_split(np.arange(16), hosts)]
    np.testing.assert_array_equal(np.concatenate([p["image"] for p in parts], axis=1), whole["image"])
    np.testing.assert_array_equal(np.concatenate([p["label"] for p in parts], axis=1), whole["label"])


@pytest.fixture
def data_with_a_broken_image(tmp_path):
    whole = [jpeg(seed, (40, 40)) for seed in range(32)]
    whole[7] = whole[7][:700] + b"\xff\xd9"  # a header and the first few blocks
    rows = [(image, i % 3, f"image-{i}.jpg") for i, image in enumerate(whole)]
    shards = {name: write_split(tmp_path, name, rows, count=32) for name in ("train", "validation")}
    write_manifest(tmp_path, ["a", "b", "c"], shards, plan="test")
    return tmp_path


@pytest.mark.parametrize("cache", ["bytes", "pixels"])
def test_a_broken_image_is_named_counted_and_replaced_with_its_label(data_with_a_broken_image, cache, caplog):
    images, r = ImageSet.open(data_with_a_broken_image, "train"), small_recipe(cache=cache)
    loader = TrainLoader(images, r, np.arange(16))
    batch = filled(loader, 0)  # one epoch
    assert loader.broken.broken == 1
    assert "image-7.jpg cannot be decoded" in caplog.text
    samples = np.concatenate([loader.order.batch(step)[0] for step in (0, 1)])
    np.testing.assert_array_equal(batch["label"].ravel(), images.labels[np.where(samples == 7, 8, samples)])


def test_too_many_broken_images_end_the_run(data_with_a_broken_image):
    images, r = ImageSet.open(data_with_a_broken_image, "train"), small_recipe(max_broken_share=0.001)
    with pytest.raises(UserError, match=r"1 of (32|16) images met.*podium prepare --check decode leaves them out"):
        filled(TrainLoader(images, r, np.arange(16)), 0)


def test_a_broken_validation_image_is_an_error_that_names_it(data_with_a_broken_image):
    loader = EvalLoader(
        ImageSet.open(data_with_a_broken_image, "validation"), small_recipe().data, 16, rows=np.arange(16)
    )
    with pytest.raises(UserError, match=r"validation image image-7\.jpg.*--check decode leaves it out"):
        filled(loader, 0)


def test_evaluation_pads_with_label_minus_one(small_data):
    images = ImageSet.open(small_data, "validation")
    loader = EvalLoader(images, small_recipe().data, 16, rows=np.arange(16))
    labels = np.concatenate([filled(loader, i)["label"] for i in range(loader.batches)])
    np.testing.assert_array_equal(labels, [*images.labels, *[-1] * 10])


def test_auto_takes_the_fastest_level_that_fits(small_data):
    images = ImageSet.open(small_data, "train")
    pixels = int((images.sizes[:, 0].astype(int) * images.sizes[:, 1] * 3).sum())
    everything = runs(np.arange(len(images)))
    assert choose_level(images, everything, "auto", budget_bytes=pixels) == "pixels"
    assert choose_level(images, everything, "auto", budget_bytes=pixels - 1) == "bytes"
    assert choose_level(images, everything, "auto", budget_bytes=1000) == "none"
    assert choose_level(images, everything, "bytes", budget_bytes=1) == "bytes"


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_devices_get_their_own_rows(data):
    shape = Shape(*data.draw(st.sampled_from([(1, 1), (2, 2), (2, 4), (4, 4), (2, 2, 4)])))
    per_chip, leading = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([0, 1]))
    batch_global = shape.chips * per_chip
    span = data.draw(st.sampled_from(valid_spans(shape, batch_global)))
    mesh = build_mesh(lay_out(shape, batch_global, span), jax.devices()[: shape.chips])
    sharding = batch_sharding(mesh, leading)
    host = {"label": np.arange(batch_global, dtype=np.int32).reshape((1,) * leading + (batch_global,))}
    here = local_rows(sharding, batch_global)
    np.testing.assert_array_equal(here, np.arange(batch_global))
    on_devices = to_devices(host, sharding, here, batch_global=batch_global)["label"]
    assert on_devices.sharding == sharding
    np.testing.assert_array_equal(on_devices, host["label"])


class Numbers:
    """A loader whose batches are their index, quick enough to overtake any consumer."""

    def __init__(self, fail_at=None):
        self.fail_at = fail_at

    def new_batch(self, index):
        return {"label": np.empty(16, np.int32)}

    def fill(self, batch, index):
        if index == self.fail_at:
            raise UserError("the disk went away")
        batch["label"][:] = index


def feed_sharding():
    import jax

    return batch_sharding(build_mesh(lay_out(Shape(2, 4), 16, 2), jax.devices()[:8]))


def test_batches_arrive_in_order_and_are_never_overwritten():
    # 8 rows of 4 bytes lie at every alignment, so some device arrays share the host's memory.
    with Feed(Numbers(), range(60), feed_sharding(), batch_global=16) as feed:
        kept = list(feed)
    assert [np.unique(batch["label"]).tolist() for batch in kept] == [[i] for i in range(60)]


def test_an_error_in_the_loader_reaches_the_consumer():
    with Feed(Numbers(fail_at=2), range(5), feed_sharding(), batch_global=16) as feed:
        next(feed), next(feed)
        for _ in range(2):
            with pytest.raises(UserError, match="disk went away"):
                next(feed)


def test_leaving_early_ends_the_thread():
    with Feed(Numbers(), range(10**9), feed_sharding(), batch_global=16) as feed:
        next(feed)
    assert not feed._thread.is_alive()


def test_the_cache_keeps_what_it_was_asked_for(small_data):
    images = ImageSet.open(small_data, "train")
    cache = Cache(images, "pixels", threads=2)
    cache.read_ahead(np.arange(5))
    assert cache.kept() == {0, 1, 2, 3, 4}
    assert cache._pixels.buffers(np.arange(5), None).sizes.tolist() == (images.sizes[:5].prod(axis=1) * 3).tolist()


def test_an_image_of_another_size_than_stored_is_decoded_from_its_file(small_data):
    images = ImageSet.open(small_data, "train")
    truth = Cache(images, "none", threads=1)
    images.sizes[1] += 8
    cache, samples, boxes = Cache(images, "pixels", threads=1), np.arange(3), np.array([(0, 0, 16, 16)] * 3)
    out, expected = np.empty((2, 3, 8, 8, 3), np.uint8)
    assert not cache.decode(samples, boxes, np.zeros(3), out=out).any()
    assert cache.kept() == {0, 2}
    truth.decode(samples, boxes, np.zeros(3), out=expected)
    np.testing.assert_array_equal(out, expected)


def read_to_the_end(loader):
    assert loader._reader is not None
    loader._reader.join()


@pytest.mark.parametrize("level", ["bytes", "pixels"])
def test_reading_ahead_takes_the_share_of_this_host_and_no_more(small_data, level):
    images = ImageSet.open(small_data, "train")
    r = small_recipe(cache=level)
    rows = np.arange(8)  # the first half of a batch of 16: the share of the first of two hosts
    loader = TrainLoader(images, r, rows)
    loader.read_ahead(first_step=0)
    read_to_the_end(loader)
    assert loader.cache.kept() == set(range(len(images) // 2))
    loader.close()


def test_closing_ends_the_reading_ahead(small_data):
    images = ImageSet.open(small_data, "train")
    loader = TrainLoader(images, small_recipe(cache="pixels"), np.arange(16))
    loader.close()
    loader.read_ahead(first_step=0)
    read_to_the_end(loader)
    assert not loader.cache.kept()


def test_a_mistaken_choice_of_decoder_is_told_before_a_thread_reads_ahead(small_data, monkeypatch):
    monkeypatch.setenv("PODIUM_DECODER", "nativ")
    decode._chosen.cache_clear()
    with pytest.raises(UserError, match="PODIUM_DECODER='nativ' is not known"):
        TrainLoader(ImageSet.open(small_data, "train"), small_recipe(), np.arange(16))


def test_parts_that_do_not_lie_together_are_laid_out_and_reach_their_devices():
    steps = np.arange(3 * 8 * 5, dtype=np.int32).reshape(3, 8, 5)
    devices = jax.devices()[:4]
    parts = [(device, steps[:, 2 * k : 2 * k + 2]) for k, device in enumerate(devices)]
    seen = []

    def lay_out(view):
        assert not view.flags["C_CONTIGUOUS"]
        seen.append(threading.current_thread().name)
        return np.ascontiguousarray(view)

    for (device, view), array in zip(parts, placed(parts, lay_out), strict=True):
        assert array.devices() == {device}
        np.testing.assert_array_equal(array, view)
    assert all(name.startswith("podium-copy") for name in seen)
