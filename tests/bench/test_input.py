"""The input benchmark: real loaders and peers on a few images. No test looks at a speed."""

import io
import json
import sys

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from tests.support.made_sources import jpeg

from podium.bench import input as bench
from podium.bench import input_peers
from podium.bench.input_peers import Workload
from podium.bench.input_table import LABELS, show
from podium.data.dataset.shards import ImageSet
from podium.errors import UserError

pytestmark = pytest.mark.slow

_PEERS = set(input_peers.PEERS)


@pytest.fixture(scope="module")
def result(small_data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "BATCHES_PER_TURN", 1)
        return bench.run(str(small_data), threads=(1, 2), rounds=2, image_size=32, memory_images=600)


def test_every_pipeline_is_measured_at_every_thread_count_or_named_as_missing(result):
    assert list(result["threads"]) == ["1", "2"]
    for count, rates in result["threads"].items():
        assert rates.keys() | set(result["missing"]) == set(bench.OURS) | _PEERS
        assert min(rates.values()) > 0
        for name, rate in rates.items():
            spread = result["spread"][count][name]
            assert spread["least"] <= rate == spread["median"] <= spread["most"]
        assert result["ratios"][count].keys() == _PEERS - set(result["missing"])
        assert all(ratio.keys() == set(bench.OURS) for ratio in result["ratios"][count].values())
        assert result["feed"][count]["share"]["median"] > 0
    assert result["machine"]["cores"] >= 1
    assert json.loads(json.dumps(result)) == result


def test_the_table_names_every_pipeline_and_what_is_missing(result):
    text = io.StringIO()
    show({**result, "missing": ["dali"]}, Console(width=160, file=text))
    for name in result["threads"]["1"]:
        assert LABELS[name] in text.getvalue()
    assert "DALI, CPU, antialiased: not installed" in text.getvalue()
    assert "make install EXTRAS=bench" in text.getvalue()
    assert "MB after 640 images" in text.getvalue()


@pytest.mark.parametrize(("threads", "rounds"), [((0,), 1), ((), 1), ((1,), 0)])
def test_counts_that_measure_nothing_are_refused(small_data, threads, rounds):
    with pytest.raises(UserError, match="threads="):
        bench.run(str(small_data), threads, rounds)


@pytest.mark.parametrize("memory_images", [-1, 1, bench.BATCH])
def test_too_few_images_to_see_memory_grow_are_refused_before_the_measurement(small_data, monkeypatch, memory_images):
    monkeypatch.setattr(bench, "_rates", lambda *_: pytest.fail("measured"))
    with pytest.raises(UserError, match=f"memory_images={memory_images}; .* more than 128"):
        bench.run(str(small_data), (1,), 1, memory_images=memory_images)


def test_memory_needs_no_more_than_two_batches(small_data):
    result = bench.memory(ImageSet.open(small_data, "train"), bench.BATCH + 1, threads=1, image_size=16)
    assert list(result["resident_mb"]) == ["128", "256"]


def test_peers_get_the_files_and_boxes_that_the_loader_draws(small_data):
    images = ImageSet.open(small_data, "train")
    loader = bench._loader(images, "bytes", 2, image_size=32)
    work, flips = bench._workload(loader)
    decoded = loader.new_batch()
    for step, (files, boxes, flip) in enumerate(zip(work.files, work.boxes, flips, strict=True)):
        loader.fill(decoded, step)
        for row in (0, 57, 127):
            x, y, width, height = boxes[row].tolist()
            with Image.open(io.BytesIO(files[row].tobytes())) as image:
                want = np.asarray(
                    image.resize((32, 32), Image.Resampling.BILINEAR, (x, y, x + width, y + height)), np.int16
                )
            want = want[:, ::-1] if flip[row] else want
            assert np.abs(decoded["image"][0, row] - want).mean() < 1.5
    assert work.images == bench.BATCH * bench.BATCHES_PER_TURN


def test_every_installed_peer_goes_through_the_whole_workload_in_each_turn(small_data):
    work, _ = bench._workload(bench._loader(ImageSet.open(small_data, "train"), "bytes", 1, image_size=16))
    short = Workload(work.files[:2], work.boxes[:2], work.min_area, work.image_size, work.threads)
    peers, missing = input_peers.build(short)
    assert peers.keys() | set(missing) == _PEERS
    for turn in peers.values():
        assert [turn(), turn(), turn()] == [256, 256, 256]


def test_a_peer_that_is_not_installed_is_named(small_data, monkeypatch):
    for module in ("tensorflow", "nvidia.dali", "cv2", "grain", "spdl.io"):
        monkeypatch.setitem(sys.modules, module, None)  # makes the import fail
    work, _ = bench._workload(bench._loader(ImageSet.open(small_data, "train"), "bytes", 1, image_size=16))
    peers, missing = input_peers.build(work)
    assert (list(peers), missing) == (["pillow"], [name for name in input_peers.PEERS if name != "pillow"])


def test_memory_does_not_grow_with_the_images_that_went_by(small_data):
    result = bench.memory(ImageSet.open(small_data, "train"), images_total=6000, threads=2, image_size=64)
    assert list(result["resident_mb"]) == ["1280", "3712", "6016"]
    # One batch is 1.6 MB and 37 of them went by between the first mark and the last.
    assert result["growth_mb"] < 8


def test_a_source_of_one_image_a_class_needs_no_split(tmp_path, monkeypatch):
    """Held-out images would leave a class none to train on; a benchmark trains nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for label in range(3):
        (tmp_path / "in" / str(label)).mkdir(parents=True)
        (tmp_path / "in" / str(label) / "1.jpg").write_bytes(jpeg(label))
    assert len(bench._open(str(tmp_path / "in"))) == 3
    (tmp_path / "in").rename(tmp_path / "validation")
    (tmp_path / "all").mkdir()
    (tmp_path / "validation").rename(tmp_path / "all" / "validation")
    assert len(bench._open(str(tmp_path / "all"))) == 3
