import math
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.data.input import counter_rng
from podium.data.input.augment import centre_boxes, eval_crops, train_crops
from podium.recipe.images import Data

SIZES = st.lists(st.tuples(st.integers(1, 700), st.integers(1, 700)), min_size=1, max_size=30)


def crops(data, sizes, seed=0, epoch=0):
    sizes = np.array(sizes, np.int32)
    return train_crops(data, seed, np.full(len(sizes), epoch), samples=np.arange(len(sizes)), sizes=sizes)


@given(SIZES)
@settings(deadline=None)
def test_resized_crops_lie_inside_the_image(sizes):
    boxes, sizes = crops(Data(), sizes).boxes, np.array(sizes)
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] >= 1).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= sizes).all()


def test_resized_crops_have_the_areas_and_ratios_of_the_distribution():
    boxes = crops(Data(min_area=0.08), [(500, 375)] * 20_000).boxes.astype(float)
    area = boxes[:, 2] * boxes[:, 3] / (500 * 375)
    ratio = boxes[:, 2] / boxes[:, 3]
    assert 0.078 < area.min() < 0.085
    assert area.max() > 0.95
    assert 0.74 < ratio.min() < 0.76
    assert 1.32 < ratio.max() < 1.35
    expected = [_crop_in_plain_python(random.Random(i), 500, 375, 0.08) for i in range(20_000)]
    assert abs(area.mean() - np.mean([w * h / (500 * 375) for w, h in expected])) < 0.01
    assert abs(ratio.mean() - np.mean([w / h for w, h in expected])) < 0.01


def _crop_in_plain_python(rng, width, height, min_area):
    """The definition, one image at a time."""
    for _ in range(10):
        area = rng.uniform(min_area, 1) * width * height
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w <= width and h <= height:
            return w, h
    return min(width, height * 4 // 3), min(height, width * 4 // 3)


def test_resized_crops_are_the_draws_of_their_images():
    """One image at a time: a crop's draws are those behind the flip's and the colours', four for each try."""
    sizes = [(500, 375), (30, 200), (64, 64), (900, 20)] * 40
    boxes = crops(Data(min_area=0.3), sizes, seed=5, epoch=2).boxes
    for sample, (width, height) in enumerate(sizes):
        draws = counter_rng.uniform(counter_rng.key(5, 2, np.array([sample])), 4, 44).reshape(10, 4).tolist()
        assert boxes[sample].tolist() == _crop_of_draws(draws, width, height)


def _crop_of_draws(draws, width, height):
    for area, ratio, right, down in draws:
        pixels, shape = (0.3 + 0.7 * area) * width * height, 0.75 * (16 / 9) ** ratio
        w, h = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
        if w <= width and h <= height:
            return [int(right * (width - w + 1)), int(down * (height - h + 1)), w, h]
    w, h = min(width, height * 4 // 3), min(height, width * 4 // 3)
    return [(width - w) // 2, (height - h) // 2, w, h]


def test_where_no_crop_fits_it_is_the_largest_of_an_allowed_ratio_in_the_middle():
    assert crops(Data(), [(1000, 12), (12, 1000)]).boxes.tolist() == [[492, 0, 16, 12], [0, 492, 12, 16]]


def test_shifted_crops_move_by_at_most_the_shift_and_reach_every_offset():
    boxes = crops(Data(crop="shifted", shift_pixels=4), [(32, 32)] * 2000).boxes
    assert (boxes[:, 2:] == 32).all()
    for axis in (0, 1):
        assert sorted(set(boxes[:, axis].tolist())) == list(range(-4, 5))


def test_the_centre_crop_is_resize_256_cut_224():
    np.testing.assert_array_equal(centre_boxes(0.875, np.array([[256, 256], [512, 256], [300, 400]])),
                                  [[16, 16, 224, 224], [144, 16, 224, 224], [19, 69, 262, 262]])  # fmt: skip


def test_draws_depend_on_seed_epoch_and_sample_alone():
    data, sizes = Data(colour_jitter=0.4), np.array([(500, 375)] * 8, np.int32)
    whole = train_crops(data, 1, np.zeros(8, int), samples=np.arange(8), sizes=sizes)
    part = train_crops(data, 1, np.zeros(3, int), samples=np.arange(4, 7), sizes=sizes[:3])
    for name in ("boxes", "flips", "colours"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[4:7])
    for other in (crops(data, sizes, seed=2), crops(data, sizes, seed=1, epoch=1)):
        assert (other.boxes != whole.boxes).any()


def test_flips_and_colours_follow_the_recipe():
    many = [(50, 50)] * 4000
    assert abs(crops(Data(flip=True), many).flips.mean() - 0.5) < 0.05
    assert crops(Data(flip=False), many).flips.sum() == 0
    colours = crops(Data(colour_jitter=0.4), many).colours
    assert colours.min() >= 0.6
    assert colours.max() <= 1.4
    assert colours.std() > 0.2
    assert (eval_crops(Data(), np.array(many)).colours == 1).all()
