"""Sources as people have them: what is passed over is counted and named, photographs stand upright, HEIC is read or its
extra named, and images without classes are told how to get them."""

import io
import sys

import numpy as np
import pytest
from PIL import Image
from tests.support.made_sources import jpeg

from podium.data.dataset.jpeg import BadImage, trainable_jpeg
from podium.data.dataset.shards import ImageSet
from podium.data.prepare import prepare, prepared
from podium.data.prepare_options import FOR_TRAINING, PrepareOptions
from podium.errors import UserError


def photographed(orientation, size=(40, 24)):
    """A picture that is red on top when held upright, stored as a camera with that orientation does."""
    upright = Image.new("RGB", size, "blue")
    upright.paste("red", (0, 0, size[0], size[1] // 2))
    back = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
    stored = upright.transpose(back[orientation]) if orientation in back else upright
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    stored.save(file, "JPEG", exif=exif, quality=95)
    return file.getvalue()


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_photographs_stand_upright(orientation):
    image = photographed(orientation)
    found = trainable_jpeg(image)
    assert (found.width, found.height) == (40, 24)
    assert found.reencoded == (orientation != 1)
    assert (found.jpeg == image) == (orientation == 1)
    pixels = np.asarray(Image.open(io.BytesIO(found.jpeg)))
    assert pixels[:10, :, 0].min() > 200
    assert pixels[-10:, :, 2].min() > 200


def test_a_damaged_note_of_the_camera_turns_nothing():
    image = photographed(6)
    broken = image.replace(b"Exif\0\0MM", b"Exif\0\0XX").replace(b"Exif\0\0II", b"Exif\0\0XX")
    assert trainable_jpeg(broken).jpeg == broken


def heic():
    pillow_heif = pytest.importorskip("pillow_heif", reason="needs the extra heic")
    file = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (64, 48), "green")).save(file, quality=90)
    return file.getvalue()


def test_heic_is_read_with_its_extra():
    found = trainable_jpeg(heic())
    assert (found.width, found.height, found.reencoded) == (64, 48, True)
    assert np.asarray(Image.open(io.BytesIO(found.jpeg))).mean((0, 1)) == pytest.approx([0, 128, 0], abs=6)


def test_heic_without_its_extra_is_told_where_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(BadImage, match=r"HEIC; pip install 'podium\[heic\]'"):
        trainable_jpeg(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")


@pytest.fixture
def photos(tmp_path):
    """Two classes with three images each, and all kinds of other things."""
    folder = tmp_path / "photos"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for k in range(3):
            (folder / name / f"{k}.jpg").write_bytes(jpeg(k))
    return folder


def test_what_is_passed_over_is_counted_and_named(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (photos / "bird").mkdir()
    (photos / "cat" / "IMG_0001").write_bytes(jpeg(7))
    (photos / "cat" / "notes.txt").write_text("x")
    (photos / "dog" / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (photos / "dog" / "phone.HEIC").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    report = prepare(photos, tmp_path / "out", PrepareOptions(validation_share=0.2))
    assert report.classes == 2
    assert "2 files have no image's ending and were passed over: cat/IMG_0001, cat/notes.txt" in report.notes
    assert "1 folder is empty and was passed over: bird/" in report.notes
    assert {item.name: item.reason for item in report.left_out} == {
        "dog/gone.jpg": "a link that leads nowhere",
        "dog/phone.HEIC": "HEIC; pip install 'podium[heic]' to have it read",
    }


def test_images_side_by_side_are_told_to_have_a_folder_per_class(tmp_path):
    (tmp_path / "flat").mkdir()
    for k in range(3):
        (tmp_path / "flat" / f"{k}.jpg").write_bytes(jpeg(k))
    with pytest.raises(
        UserError, match=r"3 images lie side by side \(0\.jpg, …\).* one sub-folder per class, as in cat/"
    ):
        prepare(tmp_path / "flat", tmp_path / "out")


def test_sizes_are_announced_and_nobody_is_told_of_a_share_that_nobody_set(photos, tmp_path):
    (photos / "train").mkdir()
    (photos / "cat").rename(photos / "train" / "cat")
    (photos / "dog").rename(photos / "train" / "dog")
    for name in ("cat", "dog"):
        (photos / "val" / name).mkdir(parents=True)
        (photos / "val" / name / "9.jpg").write_bytes(jpeg(9))
    told: list[str] = []
    directory = prepared(photos, tmp_path / "cache", FOR_TRAINING, say=told.append, progress=lambda *_: None)
    assert len(ImageSet.open(directory, "validation")) == 2
    size = sum(file.stat().st_size for file in photos.rglob("*.jpg"))
    assert f"copying {size / 1e9:.3g} GB in 8 files into {directory}, once (" in told[0]
    assert "GB are free there)" in told[0]
    assert not any("validation_share" in line for line in told)
