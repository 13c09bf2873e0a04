"""Every test runs on 16 simulated chips and sees the same small images. Nothing touches the user's cache directory: a
session has its own. Programs are compiled once for all its workers and for the processes that tests start, and with
few of LLVM's optimizations, as compiling them is most of the work; a test of what a compiler makes of a program is
marked `optimized`. A test that starts processes, trains a run or compiles whole steps is marked `slow` and left out of
`make test-fast`.
"""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# XLA's older way to make kernels compiles in half the time. The processes that tests start inherit it.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()

import jax

from podium.data.dataset.manifest import write_manifest
from podium.data.dataset.shards import ImageSet, write_split
from podium.host import compile_cache

jax.config.update("jax_num_cpu_devices", 16)
jax.devices()  # started now, before a test that wants fewer chips could


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache directory for each worker, and one folder of compiled programs for all of them. JAX writes an entry in
    place: a worker that reads what another has half written compiles it itself."""
    own = tmp_path_factory.getbasetemp()
    session = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    compiled = Path(os.environ.get("PODIUM_TEST_PROGRAMS") or session / "programs")
    compiled.mkdir(parents=True, exist_ok=True)
    (own / "cache/podium").mkdir(parents=True)
    (own / "cache/podium/jax").symlink_to(compiled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(own / "cache"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(compile_cache.enable()))  # for programs that do not ask for it
        yield


@pytest.fixture(scope="session")
def shared_programs() -> Iterator[None]:
    """Runs of one recipe in this process share their programs (tests/support/shared_programs.py)."""
    from tests.support.shared_programs import shared

    from podium.train import setup, trained_model

    with pytest.MonkeyPatch.context() as patch:
        for module in (setup, trained_model):
            patch.setattr(module, "build_step", shared)
        yield


_no_processes = False  # while a test runs that `make test-fast` has chosen


def _watch(event: str, details: tuple[object, ...]) -> None:
    if _no_processes and event == "subprocess.Popen" and details[0] == sys.executable:
        pytest.fail("a test that starts Python processes is slow: mark it with @pytest.mark.slow", pytrace=False)


sys.addaudithook(_watch)


def pytest_runtest_protocol(item: pytest.Item) -> None:
    global _no_processes
    _no_processes = "not slow" in item.config.option.markexpr
    quick = not any(item.get_closest_marker(name) for name in ("optimized", "cluster"))
    jax.config.update("jax_disable_most_optimizations", quick)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quick))  # of the processes that the test starts


def _jpeg(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared directory: 96 + 22 images of 40–60 px in three classes that differ by their dominant colour."""
    directory = tmp_path_factory.mktemp("small-data")
    rng = np.random.default_rng(7)

    def images(count: int) -> Iterator[tuple[bytes, int, str]]:
        for i in range(count):
            label = i % 3
            size = (*rng.integers(40, 61, 2), 3)
            pixels = rng.integers(0, 120, size, dtype=np.uint8)
            pixels[..., label] += 100
            yield _jpeg(pixels), label, f"{label}/{i}.jpg"

    shards = {
        name: write_split(directory, name, images(count), count=count)
        for name, count in (("train", 96), ("validation", 22))
    }
    write_manifest(directory, ["red", "green", "blue"], shards, plan="test")
    return directory


@pytest.fixture
def here(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder like the one that the examples are written for."""
    (tmp_path / "prepared").symlink_to(small_data)
    images = ImageSet.open(small_data, "train")
    for index in range(12):
        folder = tmp_path / "photos" / images.classes[images.labels[index]]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index // 3}.jpg").write_bytes(images.image(index))
    monkeypatch.chdir(tmp_path)
