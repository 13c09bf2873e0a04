import dataclasses

import pytest

from podium import recipe
from podium.errors import UserError

SMALL = {
    "epochs": 2, "batch_global": 64, "model": {"norm_span": 16, "name": "resnet8"},
    "optimizer": {"name": "sgd", "learning_rate": 0.1}, "schedule": {"decay": "cosine", "warmup_epochs": 1},
}  # fmt: skip


def test_every_shipped_recipe_loads_and_survives_a_round_trip():
    assert {"demo", "cifar10", "resnet50-256", "resnet50-32k", "resnet50-64k"} <= set(recipe.shipped())
    for name in recipe.shipped():
        loaded = recipe.load(name)
        assert loaded.name == name
        assert recipe.from_dict(recipe.to_dict(loaded)) == loaded


def test_the_papers_recipe_has_the_papers_numbers():
    r = recipe.load("resnet50-32k")
    assert isinstance(r.optimizer, recipe.Lars)
    assert (r.batch_global, r.optimizer.learning_rate, r.schedule.warmup_epochs, r.epochs) == (
        32768,
        34.0,
        12.0,
        90.0,
    )
    assert (r.optimizer.weight_decay, r.optimizer.momentum, r.label_smoothing, r.model.norm_span) == (
        1e-4,
        0.9,
        0.1,
        128,
    )


def test_recipes_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.from_dict(SMALL).epochs = 3


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("epochs=7", ("epochs", 7.0)),
        ("torus=2x4", ("torus", "2x4")),
        ("name = a b", ("name", "a b")),
        ("seed=3", ("seed", 3)),
    ],
)
def test_set_changes_a_value(override, value):
    assert getattr(recipe.load("demo", [override]), value[0]) == value[1]


def test_set_reaches_into_sections():
    r = recipe.load("demo", ["optimizer.learning_rate=3", "data.flip=false", "data.mean=[0.1, 0.2, 0.3]"])
    assert (r.optimizer.learning_rate, r.data.flip, r.data.mean) == (3.0, False, (0.1, 0.2, 0.3))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epoch=3", r"unknown key epoch \(did you mean epochs\?\)"),
        ("image_size=64", r"did you mean data\.image_size"),
        ("model.norm_spam=64", r"did you mean model\.norm_span"),
        ("epochs=many", r"epochs='many' must be a number, not text"),
        ("batch_global=64.5", r"batch_global=64\.5 must be a whole number"),
        ("batch_global=true", r"batch_global=True must be a whole number"),
        ("epochs=nan", r"finite"),
        ("max_lost_steps=1", r"max_lost_steps=1 cannot be kept with steps_per_dispatch=\d+; use \d+ or more"),
        ("epochs=0", r"epochs=0\.0 must be greater than 0"),
        ("data.crop=round", r"not one of resized, shifted, centre"),
        ("optimizer.name=adam", r"optimizer\.name='adam' must be one of sgd, lars"),
        ("schedule.warmup_epochs=16", r"warmup_epochs=16 must be below epochs"),
        ("torus=2by4", r"not ROWSxCOLS"),
        ("torus=3x3", r"not divisible by 9 chips \(3x3\); use 63 or 72"),
        ("model.norm_span=48", r"not divisible by model\.norm_span=48"),
        ("data.mean=[1]", r"three numbers"),
        ("model=3", r"must be a section"),
        ("seed", r"not key=value"),
    ],
)
def test_a_bad_value_ends_in_one_clear_line(override, message):
    with pytest.raises(UserError, match=message) as caught:
        recipe.load("demo", [override])
    assert "\n" not in str(caught.value)


def test_missing_keys_and_files_are_named(tmp_path):
    with pytest.raises(UserError, match="lacks batch_global"):
        recipe.from_dict({"epochs": 1})
    with pytest.raises(UserError, match=r"there is no recipe 'dmo' \(did you mean demo\?\)"):
        recipe.load("dmo")
    broken = tmp_path / "broken.toml"
    broken.write_text("epochs = = 3")
    with pytest.raises(UserError, match=r"not valid TOML.*line 1"):
        recipe.load(str(broken))
    with pytest.raises(UserError, match="cannot be read"):
        recipe.load(str(tmp_path / "absent.toml"))


def test_for_data_fills_in_the_numbers_and_refuses_other_classes():
    r = recipe.from_dict(SMALL).for_data(10, 640, 100)
    assert (r.model.classes, r.train_steps) == (10, 20)
    with pytest.raises(UserError, match=r"model\.classes=10 and the data has 3 classes"):
        r.for_data(3, 640, 100)


def test_training_is_a_whole_number_of_dispatches():
    r = recipe.from_dict({**SMALL, "steps_per_dispatch": 3}).for_data(10, 640, 100)
    assert r.train_steps == 21
