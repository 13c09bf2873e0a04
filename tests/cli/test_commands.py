"""What a person types, and the one line they get back when it cannot work."""

import importlib
import inspect
import json
from importlib import metadata
from typing import get_args

import pytest

from podium.cli.arguments.bench import Bench
from podium.cli.arguments.train import Launch
from podium.cli.main import COMMANDS, parse

SMALL = [
    "--set", "epochs=1", "--set", "batch_global=16", "--set", "torus=1x2", "--set", "data.image_size=16",
    "--set", "model.norm_span=8", "--set", "schedule.warmup_epochs=0",
]  # fmt: skip


@pytest.mark.slow
def test_train_eval_and_predict_speak_json(podium, small_data, tmp_path):
    run = tmp_path / "run"
    code, out, _ = podium("train", "--json", "--data", small_data, "--run", run, *SMALL)
    assert code == 0
    summary = json.loads(out.splitlines()[-1])
    assert {"accuracy", "images_per_second", "train_seconds", "run"} <= set(summary)
    code, out, _ = podium("eval", run, "--json")
    assert json.loads(out.splitlines()[-1])["accuracy"] == summary["accuracy"]
    from podium.data.dataset.shards import ImageSet

    image = tmp_path / "image.jpg"
    image.write_bytes(ImageSet.open(small_data, "validation").image(1).tobytes())
    code, out, _ = podium("predict", run, image, "--json")
    guesses = json.loads(out.splitlines()[-1])["images"][0]["guesses"]
    assert {g["class"] for g in guesses} == {"red", "green", "blue"}
    code, out, _ = podium("predict", run, image)
    assert str(image) in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--recipe", "resnet50"], "there is no recipe 'resnet50' (did you mean resnet50-"),
        (["train", "--epochs", "3"], "podium train has no option --epochs; to change the recipe, use --set epochs=3"),
        (["train", "--lr=0.1"], "use --set optimizer.learning_rate=0.1"),
        (["train", "--image-size", "64"], "use --set data.image_size=64"),
        (["train", "--batch-size"], "use --set batch_global=…"),
        (["train", "--recip", "demo"], "podium train has no option --recip (did you mean --recipe?)"),
        (["train", "now"], "podium train was given 'now', which is none of its arguments"),
        (["eval", "{tmp}/empty", "--epochs", "3"], "podium eval has no option --epochs; podium eval --help lists them"),
        (["bench", "step", "--epochs", "3"], "podium bench step has no option --epochs"),
        (["trian"], "there is no command 'trian' (did you mean train?); commands are train, recipes, launch, "),
        (["verify-resume", "--kills", "0"], "--kills 0 must be at least 1"),
        (["train", "--recipe", "cifar10"], "recipe cifar10 needs images"),
        (
            ["train", "--recipe", "cifar10", "--data", "{tmp}/absent", "--set", "model.name=resnet8"],
            "stem='patches' does not",
        ),
        (["train", "--recipe", "cifar10", "--stall-minutes", "0"], "--stall-minutes 0 must be greater than 0"),
        (["train", "--recipe", "cifar10", "--stall-minutes", "-0.5"], "--stall-minutes -0.5 must be greater than 0"),
        (["train", "--recipe", "cifar10", "--stall-minutes", "nan"], "--stall-minutes nan must be greater than 0"),
        (["train", "--recipe", "cifar10", "--max-minutes", "nan"], "--max-minutes nan must be greater than 0"),
        (["train", "--set", "batch_global=1000"], "batch_global=1000 is not divisible"),
        (["train", "--set", "torus=100x100"], "is not divisible by 10000 chips"),
        (["train", "--data", "{tmp}/absent", "--run", "{tmp}/r"], "absent"),
        (["train", "--data", "{tmp}/empty", "--run", "{tmp}/r"], "empty"),
        (["eval", "{tmp}/empty"], "holds no run"),
        (["predict", "{tmp}/empty", "{tmp}/x.jpg"], "holds no run"),
        (["predict", "{tmp}/empty"], "no image"),
        (["prepare", "{tmp}/absent", "{tmp}/out"], "absent"),
        (["prepare", "{tmp}/empty", "{tmp}/out", "--validation-share", "2"], "validation_share=2.0 is not in [0, 1)"),
        (["prepare", "{tmp}/empty", "{tmp}/out", "--workers", "0"], "workers=0; give 1 or more"),
        (["prepare", "{tmp}/empty", "{tmp}/out", "--seed", "-1"], "seed=-1 is not in [0, 2^63)"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(podium, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    code, _, err = podium(*(a.format(tmp=tmp_path) for a in arguments))
    assert code == 2
    assert message in err
    assert err.startswith("podium: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not (tmp_path / "r").exists()


def test_the_version_is_told(podium):
    code, out, _ = podium("--version")
    assert (code, out) == (0, f"podium {metadata.version('podium')}\n")


def test_an_option_may_stand_where_launch_passes_it_on():
    command = parse(["launch", "-n", "4", "--", "train", "--set", "epochs=3", "--json"])
    assert command == Launch(command=("train", "--set", "epochs=3", "--json"), n=4)


@pytest.mark.parametrize("kind", [*get_args(COMMANDS)[:-1], *get_args(Bench)])
def test_what_a_command_does_is_there_and_takes_that_command(kind):
    command = get_args(kind)[0]
    module, _, function = command.does.partition(":")
    (parameter,) = inspect.signature(getattr(importlib.import_module(module), function)).parameters.values()
    assert parameter.annotation is command


@pytest.mark.parametrize(
    "arguments", [["train", "--recipe", "resnet50"], ["prepare", "images", "out", "--validation-share", "2"]]
)
def test_debug_shows_the_traceback(podium, arguments):
    from podium.errors import UserError

    with pytest.raises(UserError):
        podium(*arguments, "--debug")


def test_a_torus_larger_than_the_devices_is_refused_before_training(podium, small_data, tmp_path):
    code, _, err = podium(
        "train", "--data", small_data, "--run", tmp_path / "r", "--set", "torus=8x8", "--set", "batch_global=64",
        "--set", "model.norm_span=1",
    )  # fmt: skip
    assert code == 2
    assert "torus=8x8 needs 64 devices and 16 are there" in err
