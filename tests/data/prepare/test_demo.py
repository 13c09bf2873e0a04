"""The demo data set: reproducible, balanced, photographic in format, out of a linear classifier's reach."""

import io
import multiprocessing
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from podium.data.prepare import demo
from podium.data.prepare.demo.figures import FIGURES
from podium.errors import UserError


def _open(jpeg: bytes) -> JpegImageFile:
    image = Image.open(io.BytesIO(jpeg))
    assert isinstance(image, JpegImageFile)
    image.load()
    return image


@cache
def _sample() -> list[tuple[bytes, int]]:
    return [demo.render(0, index) for index in range(600)]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), index=st.integers(0, 2**40))
def test_an_image_is_a_pure_function_of_seed_and_index(seed: int, index: int) -> None:
    jpeg, label = demo.render(seed, index)
    np.random.default_rng().random()
    assert demo.render(seed, index) == (jpeg, label)
    assert demo.render((seed + 1) % 2**64, index)[0] != jpeg
    assert demo.render(seed, index + 1)[0] != jpeg
    assert 0 <= label < len(demo.CLASSES)


def test_every_jpeg_is_of_photographic_size_and_decodes_whole() -> None:
    images = [_open(jpeg) for jpeg, _ in _sample()]
    assert min(min(image.size) for image in images) >= 200
    assert max(max(image.size) for image in images) <= 500
    aspects = [image.width / image.height for image in images]
    assert min(aspects) < 0.75
    assert max(aspects) > 1.4
    grey_share = np.mean([image.mode == "L" for image in images])
    assert 0.02 < grey_share < 0.09  # 5 % ± 4 standard deviations of 600 draws
    assert {image.mode for image in images} == {"L", "RGB"}
    assert len({image.layer[0][1:3] for image in images if image.mode == "RGB"}) == 3  # three subsamplings


@pytest.mark.parametrize("seed", [0, 1, 12345])
@pytest.mark.parametrize("split", [demo.TRAIN, demo.VALIDATION], ids=["train", "validation"])
def test_each_class_is_equally_frequent(split: range, seed: int) -> None:
    counts = Counter(demo._label(seed, index) for index in split)
    assert set(counts) == set(range(len(demo.CLASSES)))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_labels_are_not_a_fixed_stride_of_the_index() -> None:
    strided = [demo._label(0, index) for index in range(0, 400, len(demo.CLASSES))]
    assert len(set(strided)) == len(demo.CLASSES)


def test_the_splits_share_no_index_and_have_the_stated_sizes() -> None:
    assert not set(demo.TRAIN) & set(demo.VALIDATION)
    assert (len(demo.TRAIN), len(demo.VALIDATION)) == (demo.TRAIN_IMAGES, demo.VALIDATION_IMAGES)
    assert len(demo.CLASSES) >= 10


@pytest.mark.parametrize("name", list(FIGURES))
def test_a_figure_fills_its_square_in_every_pose_and_is_not_cut_off(name: str) -> None:
    for draw in range(12):
        silhouette, marks = demo._silhouette(np.random.default_rng(draw), name, 160)
        covered = np.asarray(silhouette) > 127
        rows, columns = np.flatnonzero(covered.any(1)), np.flatnonzero(covered.any(0))
        assert max(np.ptp(rows), np.ptp(columns)) >= 0.85 * 160  # a moon's bite takes some off
        border = np.concatenate([covered[0], covered[-1], covered[:, 0], covered[:, -1]])
        assert not border.any()
        assert 0.1 < covered.mean() < 0.8
        assert not (np.asarray(marks) > np.asarray(silhouette)).any()  # marks stay on the figure


def test_a_linear_classifier_on_pixels_stays_near_chance() -> None:
    """Ridge regression on 32×32 colour pixels sees 12–17 % (chance is 10 %). A colour or place that gave the
    class away would lift it over 30 %, even from these few images. The control has the label in a corner."""
    small = [_open(jpeg).convert("RGB").resize((32, 32)) for jpeg, _ in _sample()]
    pixels = np.stack([np.asarray(image, float) for image in small])
    labels = np.array([label for _, label in _sample()])
    assert _ridge_accuracy(pixels, labels) < 0.3
    for image, label in zip(pixels, labels, strict=True):
        image[0, label, 0] = 4_000
    assert _ridge_accuracy(pixels, labels) > 0.9


def _ridge_accuracy(pixels: np.ndarray, labels: np.ndarray, train: int = 500) -> float:
    features = pixels.reshape(len(pixels), -1) / 255 - 0.5
    targets = np.eye(len(demo.CLASSES))[labels]
    known, unknown = features[:train], features[train:]
    dual = np.linalg.solve(known @ known.T + 100 * np.eye(train), targets[:train] - targets[:train].mean(axis=0))
    return float(np.mean((unknown @ known.T @ dual).argmax(axis=1) == labels[train:]))


def test_the_pool_yields_in_order_what_render_gives() -> None:
    indices = range(3_985, 4_055)  # three chunks, the last one short
    rendered = list(demo.images(7, indices))
    assert [(jpeg, label) for jpeg, label, _ in rendered] == [demo.render(7, index) for index in indices]
    assert [name for _, _, name in rendered] == [
        f"{demo.CLASSES[label]}/{index:05d}.jpg" for index, (_, label, _) in zip(indices, rendered, strict=True)
    ]


def test_a_reader_that_stops_early_leaves_no_process_behind() -> None:
    photos = demo.images(0, range(100))
    next(photos)
    assert multiprocessing.active_children()
    photos.close()  # type: ignore[attr-defined]  # a generator, for this test alone
    assert not multiprocessing.active_children()


def test_nothing_to_render_yields_nothing() -> None:
    assert list(demo.images(0, range(0))) == []


def test_a_seed_out_of_range_is_refused() -> None:
    with pytest.raises(UserError, match="demo seed -1 is outside"):
        next(demo.images(-1, demo.TRAIN))


@pytest.mark.slow
def test_workers_do_not_load_jax() -> None:
    """A worker imports this module and its parents; none of them may bring JAX (seconds and 200 MB each)."""
    script = "import sys, podium.data.prepare.demo; print('jax' in sys.modules)"
    environment_path = {"PYTHONPATH": ":".join(sys.path)}
    output = subprocess.run([sys.executable, "-c", script], env=environment_path, capture_output=True, text=True)
    assert output.stdout.strip() == "False", output.stderr


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text("from podium.data.prepare import demo\nnext(demo.images(0, range(5)))\n")
    environment_path = {"PYTHONPATH": ":".join(sys.path)}
    output = subprocess.run([sys.executable, str(script)], env=environment_path, capture_output=True, text=True)
    assert "UserError: a process rendering the demo images died" in output.stderr
    assert output.returncode == 1
