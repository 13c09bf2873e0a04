"""The pixels that `podium predict` classifies are those that evaluation sees of the same files; others it refuses."""

import io
from functools import partial

import numpy as np
import optax
import pytest
from flax import nnx
from PIL import Image
from tests.support.made_sources import jpeg, undecodable_jpeg
from tests.support.small_runs import small_recipe

from podium.data.dataset.shards import ImageSet
from podium.data.input.loader import EvalLoader
from podium.data.prepare import prepare
from podium.errors import UserError
from podium.models import build_norm
from podium.train.run import train_recipe
from podium.train.setup import Own
from podium.train.trained_model import _pixels, open_run

pytestmark = pytest.mark.slow

DATA = small_recipe().data


def _png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def _ramp() -> Image.Image:
    return Image.fromarray(np.linspace(0, 65535, 40 * 60).reshape(40, 60).astype(np.uint16))


def test_prediction_sees_what_evaluation_sees(tmp_path):
    files = {
        "plain.jpg": jpeg(1, (50, 40)),
        "grey.jpg": jpeg(2, (40, 50), "L"),
        "cmyk.jpg": jpeg(3, (50, 40), "CMYK"),
        "colour.png": jpeg(4, (60, 40), format="PNG"),
        "sixteen-bits.png": _png(_ramp()),
    }
    for split in ("train", "val"):
        (tmp_path / "in" / split / "cat").mkdir(parents=True)
        for name, content in files.items():
            (tmp_path / "in" / split / "cat" / name).write_bytes(content)
    prepare(tmp_path / "in", tmp_path / "out")
    images = ImageSet.open(tmp_path / "out", "validation")
    loader = EvalLoader(images, DATA, len(files), rows=np.arange(len(files)))
    batch = loader.new_batch()
    loader.fill(batch, 0)
    names = [images.name(i) for i in range(len(files))]
    np.testing.assert_array_equal(_pixels([tmp_path / "in" / name for name in names], DATA), batch["image"])


def test_sixteen_bit_grey_is_not_clipped_to_white(tmp_path):
    (tmp_path / "ramp.png").write_bytes(_png(_ramp()))
    assert 100 < _pixels([tmp_path / "ramp.png"], DATA).mean() < 155


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (jpeg(1)[:-2], "truncated: the JPEG has no end marker"),
        (undecodable_jpeg(), "the JPEG data are corrupt"),
        (_png(Image.new("1", (9400, 9400))), "9400×9400 pixels is over the limit of 64 Mpx"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "a kind that Pillow cannot read"),
        (b"", "empty file"),
    ],
    ids=["cut off", "damaged", "over the limit", "PostScript", "empty"],
)
def test_what_training_would_not_take_is_named(tmp_path, content, reason):
    good, bad = tmp_path / "good.jpg", tmp_path / "bad"
    good.write_bytes(jpeg(1))
    bad.write_bytes(content)
    with pytest.raises(UserError) as refused:
        _pixels([good, bad], DATA)
    assert f"image {bad} cannot be decoded (" in str(refused.value)
    assert reason in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"absent\.jpg could not be read: No such file"):
        _pixels([tmp_path / "absent.jpg"], DATA)


class OwnNet(nnx.Module):
    def __init__(self, norm, width, rngs):
        self.conv = nnx.Conv(3, width, (3, 3), 2, use_bias=False, rngs=rngs)
        self.norm = norm(width, rngs=rngs)
        self.classifier = nnx.Linear(width, 3, rngs=rngs)

    def __call__(self, x):
        return self.classifier(nnx.relu(self.norm(self.conv(x))).mean((1, 2)))


def test_a_network_and_an_optimizer_of_ones_own_are_trained_and_opened_and_no_other_in_its_place(small_data, tmp_path):
    recipe, run = small_recipe(), tmp_path / "run"
    own, wider = (partial(OwnNet, build_norm(recipe.model), width) for width in (8, 9))
    rates = []

    def descent(rate):
        rates.append(rate)
        return optax.sgd(rate)

    summary = train_recipe(recipe, small_data, run, own=Own(own, descent))
    assert rates, "the optimizer was not made"
    assert open_run(run, own).evaluate().top1 == summary.accuracy
    for another in (None, wider):
        line = r"checkpoints/24 belongs to a different network; .* open_run\('.*', make_model\)"
        with pytest.raises(UserError, match=line):
            open_run(run, another)
