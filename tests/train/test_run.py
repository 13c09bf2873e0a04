"""`train_recipe` takes whatever holds images, as the command line does, and finds a place for the run."""

import io

import numpy as np
import pytest
from PIL import Image
from tests.support.small_runs import Heard, small_recipe

from podium.data.dataset.shards import ImageSet
from podium.data.prepare import demo
from podium.data.prepare.locate import locate
from podium.errors import Stopped
from podium.train import run_directory
from podium.train.run import Limits, train_recipe

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    """Images as one has them: a folder per class, nothing prepared."""
    rng = np.random.default_rng(3)
    for split, count in (("train", 16), ("val", 3)):
        for name in ("cat", "dog"):
            (tmp_path / "photos" / split / name).mkdir(parents=True)
            for k in range(count):
                file = io.BytesIO()
                Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(file, "JPEG")
                (tmp_path / "photos" / split / name / f"{k}.jpg").write_bytes(file.getvalue())
    return tmp_path / "photos"


def test_any_source_is_prepared_first_and_a_run_has_a_place_by_itself(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    heard = Heard()
    with pytest.raises(Stopped) as stopped:
        train_recipe(small_recipe(), folder, listener=heard, limits=Limits(max_minutes=1e-6))
    assert any(f"{folder} is not prepared yet" in note for note in heard.of(str))
    assert any("32 train + 6 validation images of 2 classes" in note for note in heard.of(str))
    (run,) = (tmp_path / "runs").iterdir()
    assert stopped.value.run == f"runs/{run.name}"
    info = run_directory.read(run)
    assert info.classes == ("cat", "dog")
    assert info.recipe.data.train_images == 32
    assert locate(folder) == locate(info.data)  # prepared once


def test_no_data_means_the_demos_made_once_with_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(demo, "TRAIN", demo.TRAIN[:6])
    monkeypatch.setattr(demo, "VALIDATION", demo.VALIDATION[:2])
    seen = []
    said: list[str] = []
    made = locate(None, say=said.append, progress=lambda *given: seen.append(given))
    assert said == [f"making the demo images in {made}, once"]
    assert seen == [("demo images", done, 8) for done in range(1, 9)]
    assert [len(ImageSet.open(made, split)) for split in ("train", "validation")] == [6, 2]
    assert locate(None, say=said.append) == made
    assert len(said) == 1
