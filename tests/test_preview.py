"""The picture of a batch: the loader's own pixels, at their places, in the colours that the network is given."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from podium import preview as module
from podium.data.dataset.shards import ImageSet
from podium.data.input.loader import TrainLoader
from podium.errors import UserError
from podium.preview import as_seen, preview
from podium.recipe.reading import from_dict, to_dict


def small_recipe(batch_global=16, **data):
    return from_dict({
        "epochs": 2, "batch_global": batch_global, "seed": 3, "steps_per_dispatch": 2,
        "data": {"image_size": 40, "threads": 2, **data},
        "model": {"norm_span": 1, "name": "resnet8", "stem": "conv3"},
        "optimizer": {"name": "sgd", "learning_rate": 0.1}, "schedule": {"decay": "cosine", "warmup_epochs": 0},
    })  # fmt: skip


def tiles(sheet, size, count):
    """The images cut out of a sheet again, and the strips below them."""
    scale = -(-module._TILE_LEAST // size)
    tile = size * scale
    step_x, step_y = tile + module._GAP, tile + module._TEXT_HEIGHT + module._GAP
    for i in range(count):
        x, y = module._GAP + i % module._COLUMNS * step_x, module._GAP + i // module._COLUMNS * step_y
        yield (
            sheet[y : y + tile : scale, x : x + tile : scale],
            sheet[y + tile : y + step_y - module._GAP, x : x + tile],
        )


def test_the_sheet_holds_the_loaders_pixels_with_a_name_below_each(small_data, tmp_path):
    r = small_recipe()
    preview(small_data, r, tmp_path / "batch.png")
    with Image.open(tmp_path / "batch.png") as image:
        assert image.format == "PNG"
        sheet = np.asarray(image)
    loader = TrainLoader(
        ImageSet.open(small_data, "train"), dataclasses.replace(r, steps_per_dispatch=1), np.arange(16)
    )
    batch = loader.new_batch()
    loader.fill(batch, 0)
    strips: dict[int, set[bytes]] = {}
    for i, (pixels, strip) in enumerate(tiles(sheet, 40, 16)):
        np.testing.assert_array_equal(pixels, batch["image"][0, i])
        assert strip.min() < 100  # something is written there
        strips.setdefault(int(batch["label"][0, i]), set()).add(strip.tobytes())
    assert [len(drawn) for drawn in strips.values()] == [1, 1, 1]  # one class, one name
    assert len(set.union(*strips.values())) == 3


def test_a_large_batch_is_shown_by_64_images_of_all_its_parts(small_data, tmp_path):
    preview(small_data, small_recipe(batch_global=4096, image_size=8), tmp_path / "batch.png")
    with Image.open(tmp_path / "batch.png") as image:
        assert image.size == (8 * (112 + 6) + 6, 8 * (112 + 18 + 6) + 6)
    rows = module._even_rows(4096)
    assert (rows[0], rows[-1], len(rows), len(np.unique(rows))) == (0, 4032, 64, 64)


def test_colours_are_changed_by_the_factors_of_the_batch():
    data = small_recipe(colour_jitter=0.5).data
    grey = np.full((3, 4, 4, 3), 100, np.uint8)
    red = np.zeros((1, 4, 4, 3), np.uint8)
    red[..., 0] = 200
    brighter = as_seen({"image": grey, "colour": np.array([[1.5, 1, 1], [0.5, 1, 1], [1, 1, 0.5]], np.float32)}, data)
    np.testing.assert_array_equal(brighter[:, 0, 0], [[150] * 3, [50] * 3, [100] * 3])
    # Saturation 0.5 goes halfway to the luma, 0.299 · 200 = 59.8.
    np.testing.assert_array_equal(
        as_seen({"image": red, "colour": np.array([[1, 1, 0.5]], np.float32)}, data)[0, 0, 0], [130, 30, 30]
    )


def test_mixed_images_are_shown_in_pairs_with_both_names_and_erased_parts_grey(small_data, tmp_path):
    table = to_dict(small_recipe(batch_global=256, mean=[0.5, 0.5, 0.5]))
    r = from_dict({**table, "augment": {"mixup": 1.0, "cutmix": 1.0, "erasing": 1.0}})
    preview(small_data, r, tmp_path / "batch.png")
    rows = module._even_rows(256, pairs=True)
    np.testing.assert_array_equal(rows[::2] + 1, rows[1::2])
    assert (rows[0], rows[2], len(rows)) == (0, 8, 64)
    batch = {"label": np.array([0, 1]), "mix": np.array([[1, 0, 0, 0, 0, 1], [0.25, 0, 0, 0, 0, 0.25]], np.float32)}
    assert module.captions(batch, ["cat", "dog"]) == ["cat", "dog 25%\n+ cat"]
    black = np.zeros((2, 8, 8, 3), np.uint8)
    erased = as_seen({"image": black, "erase": np.array([[2, 0, 5, 8], [0, 0, 0, 0]], np.int32)}, r.data)
    assert (erased[0] > 0).all(-1).any(0).nonzero()[0].tolist() == [2, 3, 4]
    assert set(np.unique(erased[0])) == {0, 128}
    assert not erased[1].any()


def test_without_a_change_of_colours_every_level_comes_back():
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=-1)
    np.testing.assert_array_equal(as_seen({"image": levels}, small_recipe().data), levels)


def test_a_long_class_name_is_cut_to_the_width_of_its_image():
    from PIL import ImageFont

    font = ImageFont.load_default(module._TEXT_SIZE)
    short = module._shortened("a very long class name, longer than any image is wide", 112, font)
    assert short.startswith("a very long")
    assert short.endswith("…")
    assert font.getlength(short) <= 112
    assert module._shortened("cat", 112, font) == "cat"


def test_a_place_that_cannot_be_written_is_the_users_to_choose(small_data, tmp_path):
    with pytest.raises(UserError, match=r"nowhere.* could not be written: .*; choose a different file"):
        preview(small_data, small_recipe(), tmp_path / "nowhere" / "batch.png")
