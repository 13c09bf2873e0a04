import dataclasses

import pytest

from podium.errors import UserError
from podium.recipe.optimization import Lars, Steps
from podium.recipe.reading import from_dict, from_run, load_recipe, shipped, to_dict

SMALL = {
    "epochs": 2, "batch_global": 64, "model": {"norm_span": 16, "name": "resnet8"},
    "optimizer": {"name": "sgd", "learning_rate": 0.1}, "schedule": {"decay": "cosine", "warmup_epochs": 1},
}  # fmt: skip


def test_every_shipped_recipe_loads_and_survives_a_round_trip():
    assert {"demo", "cifar10", "resnet50-256", "resnet50-32k", "resnet50-64k"} <= set(shipped())
    for name in shipped():
        loaded = load_recipe(name)
        assert loaded.name == name
        assert from_dict(to_dict(loaded)) == loaded


# What Podium 0.1.0 wrote to run.json for `--recipe resnet50-256 --set torus=1x2`.
WRITTEN_BY_0_1_0 = {
    "epochs": 90.0, "batch_global": 256,
    "model": {
        "norm_span": 32, "name": "resnet50", "classes": 1000, "stem": "conv7", "norm_momentum": 0.9,
        "norm_epsilon": 1e-05, "last_scale": 0.0,
    },
    "optimizer": {
        "name": "sgd", "learning_rate": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0001,
    },
    "schedule": {"decay": "steps", "warmup_epochs": 5.0, "at_epochs": [30.0, 60.0, 80.0], "factor": 0.1},
    "data": {
        "image_size": 224, "crop": "resized", "min_area": 0.08, "shift_pixels": 4, "flip": True, "colour_jitter": 0.0,
        "eval_share": 0.875, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "cache": "auto",
        "cache_gb": 0.0, "threads": 0, "max_broken_share": 0.01, "train_images": 1281167, "validation_images": 50000,
    },
    "name": "resnet50-256", "seed": 0, "torus": "1x2", "precision": "auto", "reduce": "auto", "weight_update": "auto",
    "bucket_mb": 25.0, "label_smoothing": 0.0, "evaluate_every_epochs": 4.0, "steps_per_dispatch": 1,
    "log_every_steps": 10, "max_lost_steps": 200,
}  # fmt: skip


def test_a_run_of_0_1_0_keeps_its_padding_and_new_runs_are_padded_alike_on_both_sides():
    assert from_run(WRITTEN_BY_0_1_0).model.padding == "same"
    assert load_recipe("resnet50-256").model.padding == "symmetric"
    for padding in ("same", "symmetric"):
        recipe = load_recipe("resnet50-256", [f"model.padding={padding}"])
        assert from_run(to_dict(recipe)) == recipe


def test_a_network_without_strides_resumes_from_0_1_0_with_the_same_command():
    recipe = load_recipe("cifar10")
    written = to_dict(recipe)
    del written["model"]["padding"]
    assert from_run(written) == recipe


def test_a_run_of_0_1_0_keeps_its_order():
    assert from_run(WRITTEN_BY_0_1_0).data.order == "v1"
    assert from_run(to_dict(from_dict(WRITTEN_BY_0_1_0))).data.order == "v2"


def test_the_papers_recipe_has_the_papers_numbers():
    r = load_recipe("resnet50-32k")
    assert isinstance(r.optimizer, Lars)
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
        from_dict(SMALL).epochs = 3  # type: ignore[misc]


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
    assert getattr(load_recipe("demo", [override]), value[0]) == value[1]


def test_set_reaches_into_sections():
    r = load_recipe("demo", ["optimizer.learning_rate=3", "data.flip=false", "data.mean=[0.1, 0.2, 0.3]"])
    assert (r.optimizer.learning_rate, r.data.flip, r.data.mean) == (3.0, False, (0.1, 0.2, 0.3))


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize(
    "override", ["schedule.decay=cosine", "schedule.decay=polynomial", "optimizer.name=sgd", "optimizer.name=lars"]
)
def test_set_takes_another_optimizer_or_schedule_in_place_of_any(name, override):
    section, _, tag_and_value = override.partition(".")
    tag, _, value = tag_and_value.partition("=")
    before, after = (getattr(load_recipe(name, changes), section) for changes in ([], [override]))
    assert getattr(after, tag) == value
    shared = {f.name for f in dataclasses.fields(before)} & {f.name for f in dataclasses.fields(after)} - {tag}
    assert all(getattr(before, field) == getattr(after, field) for field in shared)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epochs=10", r"at_epochs=\[3\.3333, 6\.6667, 8\.8889\] must ascend, from schedule\.warmup_epochs=5"),
        ("schedule.at_epochs=[60, 30]", "must ascend"),
        ("schedule.at_epochs=[30, 90]", "must ascend"),
        ("schedule.warmup_epochs=40", r"from schedule\.warmup_epochs=40"),
        ("schedule.factor=-1", r"schedule\.factor=-1\.0 must be greater than 0"),
        ("schedule.power=2", r"schedule\.power does nothing with schedule\.decay='steps'; leave it out"),
        ("optimizer.trust=1", r"optimizer\.trust does nothing with optimizer\.name='sgd'"),
    ],
)
def test_steps_that_the_run_never_takes_are_refused(override, message):
    with pytest.raises(UserError, match=message):
        load_recipe("resnet50-256", [override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epoch=3", r"unknown key epoch \(did you mean epochs\?\)"),
        ("image_size=64", r"did you mean data\.image_size"),
        ("model.norm_spam=64", r"did you mean model\.norm_span"),
        ("optimizer.lr=1", r"unknown key optimizer\.lr \(did you mean optimizer\.learning_rate\?\)"),
        ("lr=1", r"did you mean optimizer\.learning_rate"),
        ("batch_size=32", r"unknown key batch_size \(did you mean batch_global\?\)"),
        ("data.label_smoothing=0.1", r"did you mean label_smoothing\?"),
        ("warmup=3", r"did you mean schedule\.warmup_epochs"),
        ("data.haze=0.2", r"unknown key data\.haze; section data has image_size, .*validation_images$"),
        ("zzz=1", r"unknown key zzz; a recipe has epochs, .*, model, optimizer"),
        ("optimizer=3", r"optimizer=3 must be a section"),
        ("epochs=many", r"epochs='many' must be a number, not text"),
        ("batch_global=64.5", r"batch_global=64\.5 must be a whole number"),
        ("batch_global=true", r"batch_global=True must be a whole number"),
        ("epochs=nan", r"finite"),
        ("max_lost_steps=1", r"max_lost_steps=1 cannot be kept with steps_per_dispatch=\d+; use \d+ or more"),
        ("epochs=0", r"epochs=0\.0 must be greater than 0"),
        ("data.crop=round", r"not one of resized, shifted, centre"),
        ("optimizer.name=[1]", r"optimizer\.name=\[1\] must be one of sgd, lars"),
        ('optimizer={name = "lars", learning_rate = 1, trust = -1}', r"optimizer\.trust=-1\.0 must be greater than 0"),
        ("data.max_broken_share=-1", r"max_broken_share=-1\.0 must be at least 0"),
        ("label_smoothing=1", r"label_smoothing=1\.0 must be at least 0 and below 1"),
        ("data.min_area=0", r"data\.min_area=0\.0 must be greater than 0 and at most 1"),
        ("data.train_images=0", r"data\.train_images=0 must be greater than 0"),
        ("data.std=[1, 2, 0]", r"data\.std=\[1\.0, 2\.0, 0\.0\] must be three numbers \(red, green, blue\) and gr"),
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
        load_recipe("demo", [override])
    assert "\n" not in str(caught.value)


ABOVE_0, FROM_0 = "must be greater than 0", "must be at least 0"
SHARE, PART = "must be at least 0 and below 1", "must be greater than 0 and at most 1"


@pytest.mark.parametrize(
    ("keys", "values", "message"),
    [
        ("epochs bucket_mb evaluate_every_epochs", (0, -0.5), ABOVE_0),
        ("batch_global steps_per_dispatch log_every_steps max_lost_steps", (0, -1), ABOVE_0),
        ("model.norm_span data.image_size data.train_images", (0, -1), ABOVE_0),
        ("model.norm_epsilon optimizer.learning_rate", (0, -0.5), ABOVE_0),
        ("optimizer.trust schedule.power", (0, -0.5), ABOVE_0),
        ("seed model.classes data.shift_pixels data.threads data.validation_images", (-1,), FROM_0),
        ("data.cache_gb data.max_broken_share optimizer.weight_decay schedule.warmup_epochs", (-0.5,), FROM_0),
        ("label_smoothing data.colour_jitter model.norm_momentum optimizer.momentum", (-0.5, 1), SHARE),
        ("data.min_area data.eval_share", (0, 1.5), PART),
    ],
)
def test_every_number_keeps_its_bounds(keys, values, message):
    for key in keys.split():
        for value in values:
            with pytest.raises(UserError, match=rf"^{key}=[-\d.]+ {message}$"):
                load_recipe("resnet50-32k", [f"{key}={value}"])


def test_missing_keys_and_files_are_named(tmp_path):
    with pytest.raises(UserError, match="lacks batch_global"):
        from_dict({"epochs": 1})
    with pytest.raises(UserError, match=r"the recipe lacks optimizer\.name; it is one of sgd, lars"):
        from_dict({**SMALL, "optimizer": {"learning_rate": 0.1}})
    with pytest.raises(UserError, match=r"there is no recipe 'dmo' \(did you mean demo\?\)"):
        load_recipe("dmo")
    broken = tmp_path / "broken.toml"
    broken.write_text("epochs = = 3")
    with pytest.raises(UserError, match=r"not valid TOML.*line 1"):
        load_recipe(str(broken))
    with pytest.raises(UserError, match="cannot be read"):
        load_recipe(str(tmp_path / "absent.toml"))


def test_for_data_fills_in_the_numbers_and_refuses_other_classes():
    r = from_dict(SMALL).for_data(10, 640, 100)
    assert (r.model.classes, r.train_steps) == (10, 20)
    with pytest.raises(UserError, match=r"model\.classes=10 and the data has 3 classes"):
        r.for_data(3, 640, 100)


def test_training_is_a_whole_number_of_dispatches():
    r = from_dict({**SMALL, "steps_per_dispatch": 3}).for_data(10, 640, 100)
    assert r.train_steps == 21


@pytest.mark.parametrize(
    ("overrides", "at"),
    [
        (["epochs=9"], (3.0, 6.0, 8.0)),
        (["epochs=9", "schedule.warmup_epochs=1"], (3.0, 6.0, 8.0)),
        (["epochs=9", "schedule.at_epochs=[7, 8]"], (7.0, 8.0)),
        (["epochs=90"], (30.0, 60.0, 80.0)),
    ],
)
def test_the_steps_of_the_learning_rate_move_with_the_epochs(overrides, at):
    recipe = load_recipe("resnet50-256", ["schedule.warmup_epochs=0.5", *overrides])
    assert isinstance(recipe.schedule, Steps)
    assert recipe.schedule.at_epochs == at


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("optimizer.lr", r"\(did you mean optimizer.learning_rate\?\)"),
        ("batch_size", r"\(did you mean batch_global\?\)"),
        ("data.mixup", r"did you mean augment\.mixup"),
        ("model.pretrained", "weights to start from are not part of a recipe; use --weights"),
        ("ema", "did you mean average_decay"),
    ],
)
def test_keys_of_other_programs_are_answered_with_what_comes_nearest(key, answer):
    with pytest.raises(UserError, match=f"unknown key {key}.*{answer}"):
        load_recipe("demo", [f"{key}=0.2"])
