"""Every test runs on 16 simulated chips and sees the same small images; nothing touches the user's cache directory."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

jax.config.update("jax_num_cpu_devices", 16)
jax.devices()  # started now, before a test that wants fewer chips could


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def _jpeg(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


@pytest.fixture(scope="session")
def small_data(tmp_path_factory) -> Path:
    """A prepared directory: 96 + 22 images of 40–60 px in three classes that differ by their dominant colour."""
    from podium.data.dataset.manifest import write_manifest
    from podium.data.dataset.shards import write_split

    directory = tmp_path_factory.mktemp("small-data")
    rng = np.random.default_rng(7)

    def images(count: int):
        for i in range(count):
            label = i % 3
            size = (*rng.integers(40, 61, 2), 3)
            pixels = rng.integers(0, 120, size, dtype=np.uint8)
            pixels[..., label] += 100
            yield _jpeg(pixels), label, f"{label}/{i}.jpg"

    shards = {
        name: write_split(directory, name, images(count), count) for name, count in (("train", 96), ("validation", 22))
    }
    write_manifest(directory, ["red", "green", "blue"], shards, plan="test")
    return directory
