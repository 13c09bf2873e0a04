"""The borders of what may stand together in a recipe: the last value that works, and the first that does not."""

import pytest

from podium.errors import UserError
from podium.recipe.reading import from_dict, with_overrides


def recipe(**changes):
    table = {
        "epochs": 10, "batch_global": 32, "model": {"norm_span": 8},
        "optimizer": {"name": "sgd", "learning_rate": 0.1}, "schedule": {"decay": "cosine", "warmup_epochs": 1},
    }  # fmt: skip
    return from_dict({**table, **changes})


@pytest.mark.parametrize(
    ("works", "fails", "message"),
    [
        ({"schedule": {"decay": "cosine", "warmup_epochs": 9}}, {"schedule": {"decay": "cosine", "warmup_epochs": 10}},
         r"schedule.warmup_epochs=10 must be below epochs=10"),
        ({"max_lost_steps": 6, "steps_per_dispatch": 3}, {"max_lost_steps": 5, "steps_per_dispatch": 3},
         r"max_lost_steps=5 cannot be kept with steps_per_dispatch=3; use 6 or more"),
        ({"schedule": {"decay": "steps", "warmup_epochs": 1, "at_epochs": [1, 9]}},
         {"schedule": {"decay": "steps", "warmup_epochs": 1, "at_epochs": [1, 10]}}, r"ascend, .* below epochs=10"),
        ({"model": {"norm_span": 16}}, {"model": {"norm_span": 12}}, r"norm_span=16 or 32, or --set batch_global=36"),
        ({"label_smoothing": 0.0}, {"label_smoothing": 1.0}, r"label_smoothing=1.0 must be"),
        ({"seed": 0}, {"seed": -1}, r"seed=-1 must"),
        ({"data": {"early_sizes": [8, 16], "early_epochs": [1, 9]}},
         {"data": {"early_sizes": [8], "early_epochs": [10]}}, r"equally many, .* to below epochs=10"),
        ({"data": {"early_sizes": [], "early_epochs": []}}, {"data": {"early_sizes": [8], "early_epochs": []}},
         r"data.early_sizes=\[8\] and data.early_epochs=\[\] must be equally many"),
        ({"loss": "binary", "target_threshold": 0.2}, {"target_threshold": 0.2}, r"does nothing with loss"),
        ({"class_weights": [1, 2]}, {"class_weights": [1, 2], "data": {"balance": "loss"}}, r"both weigh classes"),
        ({"batch_global": 24, "augment": {"cutmix": 1}},
         {"batch_global": 9, "model": {"norm_span": 9}, "augment": {"mixup": 1}}, r"batch_global=9 is odd"),
    ],
)  # fmt: skip
def test_the_last_that_works_and_the_first_that_does_not(works, fails, message):
    recipe(**works)
    with pytest.raises(UserError, match=message):
        recipe(**fails)


def test_a_recipe_without_classes_takes_the_datas_and_one_with_others_is_refused():
    assert recipe().for_data(3, 96, 22).model.classes == 3
    assert recipe(model={"norm_span": 8, "classes": 3}).for_data(3, 96, 22).data.validation_images == 22
    with pytest.raises(UserError, match=r"model.classes=4 and the data has 3 classes"):
        recipe(model={"norm_span": 8, "classes": 4}).for_data(3, 96, 22)


def test_as_many_class_weights_as_classes_are_needed():
    with pytest.raises(UserError, match=r"class_weights has 2 numbers and the data has 3 classes"):
        recipe(class_weights=[1, 2]).for_data(3, 96, 22)


def test_sizes_grow_at_the_dispatch_after_their_epoch_and_move_with_the_epochs():
    r = recipe(steps_per_dispatch=4, data={"early_sizes": [8, 16], "early_epochs": [2, 3.5]}).for_data(3, 96, 22)
    # 3 steps an epoch: after step 6, in the dispatch of steps 8 to 11, and after 10.5, in that of 12 to 15.
    assert [r.size_at(step) for step in (0, 7, 8, 11, 12, 31)] == [8, 8, 16, 16, 224, 224]
    assert r.sizes_from(9) == (16, 224)
    longer = with_overrides(r, ["epochs=20"])
    assert longer.data.early_epochs == (4, 7)
    assert with_overrides(r, ["epochs=20", "data.early_epochs=[1, 2]"]).data.early_epochs == (1, 2)


@pytest.mark.parametrize(
    ("epochs", "per_dispatch", "steps"), [(10, 1, 30), (10, 4, 32), (10, 7, 28), (0.1, 1, 1), (0.1, 7, 7)]
)
def test_steps_are_whole_dispatches_nearest_to_the_epochs(epochs, per_dispatch, steps):
    """96 images in batches of 32: three steps an epoch."""
    changes = {"schedule": {"decay": "cosine", "warmup_epochs": 0}, "max_lost_steps": 200}
    made = recipe(epochs=epochs, steps_per_dispatch=per_dispatch, **changes).for_data(3, 96, 22)
    assert made.train_steps == steps


@pytest.mark.parametrize(
    ("batch", "span", "advice"),
    [
        (50, 32, "use --set model.norm_span=25 or 50, or --set batch_global=64"),
        (96, 64, "use --set model.norm_span=32 or 48, or --set batch_global=128"),
        (7, 4, "use --set model.norm_span=7, or --set batch_global=8"),
        (60, 8, "use --set model.norm_span=10 or 12, or --set batch_global=64"),
    ],
)
def test_a_span_that_does_not_fit_is_answered_with_some_that_learn(batch, span, advice):
    with pytest.raises(UserError) as refused:
        recipe(batch_global=batch, model={"norm_span": span})
    assert str(refused.value).endswith(advice)
    for setting in advice.removeprefix("use ").split(", or "):  # the advice works
        key, _, values = setting.removeprefix("--set ").partition("=")
        for value in map(int, values.split(" or ")):
            if key == "batch_global":
                recipe(batch_global=value, model={"norm_span": span})
            else:
                recipe(batch_global=batch, model={"norm_span": value})
