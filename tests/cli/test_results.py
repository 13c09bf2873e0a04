"""`podium eval` and `podium predict` on a small trained run: for many files, with bad ones among them, from any kept
checkpoint, on some of the classes."""

import csv
import json
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image
from tests.support.made_sources import jpeg, undecodable_jpeg
from tests.support.small_runs import small_recipe

from podium.cli.arguments.recipes import Recipes
from podium.cli.arguments.results import Eval, Predict, which_checkpoint
from podium.cli.recipes import recipes
from podium.cli.results import evaluate, predict
from podium.data.dataset.manifest import write_manifest
from podium.data.dataset.shards import ImageSet, write_split
from podium.errors import UserError
from podium.recipe.reading import shipped
from podium.train.checkpoint import Checkpoints
from podium.train.classify import find_images
from podium.train.run import train_recipe
from podium.train.trained_model import open_run


@pytest.fixture(scope="module")
def run(small_data, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "run"
    train_recipe(small_recipe(evaluate_every_epochs=1, max_lost_steps=2), small_data, directory)
    return directory


@pytest.fixture
def photos(small_data, tmp_path):
    """A folder with eleven good images, one damaged, one empty, and a text file that nobody asked about."""
    images, folder = ImageSet.open(small_data, "validation"), tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    for i in range(11):
        (folder / ("more" if i > 6 else ".") / f"{i:02}.jpg").write_bytes(images.image(i).tobytes())
    (folder / "damaged.jpg").write_bytes(undecodable_jpeg())
    (folder / "empty.png").touch()
    (folder / "notes.txt").write_text("holiday")
    return folder


@pytest.mark.slow
def test_a_folder_is_classified_and_bad_files_are_named_and_left_out(run, photos, tmp_path, capsys):
    command = Predict(run=run, images=(str(photos),), top=2, csv=tmp_path / "p.csv", parquet=tmp_path / "p.parquet")
    told = predict(command)
    assert command.exit_code(told) == 1
    assert {entry["image"]: entry["reason"] for entry in told["failed"]} == {
        str(photos / "damaged.jpg"): "the JPEG data are corrupt",
        str(photos / "empty.png"): "empty file",
    }
    assert "2 of 13 images could not be used" in " ".join(capsys.readouterr().err.split())
    trained = open_run(run)
    files = [entry["image"] for entry in told["images"]]
    assert files == sorted(files)
    assert len(files) == 11
    expected = trained.predict(files)
    for entry, probabilities in zip(told["images"], expected, strict=True):
        best = np.argsort(-probabilities)[:2]
        assert [guess["class"] for guess in entry["guesses"]] == [trained.info.classes[i] for i in best]
        np.testing.assert_allclose([g["probability"] for g in entry["guesses"]], probabilities[best], atol=1e-5)
    rows = list(csv.reader((tmp_path / "p.csv").read_text().splitlines()))
    assert rows[0] == ["image", "class_1", "probability_1", "class_2", "probability_2"]
    assert [row[0] for row in rows[1:]] == files
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    assert table.column("class_1").to_pylist() == [entry["guesses"][0]["class"] for entry in told["images"]]


@pytest.mark.slow
def test_any_kept_checkpoint_and_the_best_can_be_asked(run):
    history = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluations = {line["step"]: line["top1"] for line in history if line["event"] == "evaluation"}
    with Checkpoints(run) as checkpoints:
        kept, best = checkpoints.steps(), checkpoints.best()
    assert evaluations[best] == max(evaluations.values())
    assert open_run(run, checkpoint="best").evaluate().top1 == evaluations[best]
    assert open_run(run, checkpoint=kept[-1]).steps == open_run(run).steps == kept[-1]
    with pytest.raises(UserError, match=f"no checkpoint of step 1; kept are {', '.join(map(str, kept))}"):
        open_run(run, checkpoint=1)


def test_the_best_checkpoint_outlives_newer_ones(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2, 3):
            (tmp_path / "checkpoints" / str(step)).mkdir()
            (tmp_path / "checkpoints" / str(step) / "hashes.json").write_text("{}")
        for step, top1 in ((1, 0.4), (2, 0.9), (3, 0.5)):
            checkpoints.note_accuracy(step, top1)
        assert checkpoints.best() == 2
        checkpoints._remove(2)
        assert checkpoints.best() is None
        checkpoints.note_accuracy(3, 0.5)  # of those that are left
        assert checkpoints.best() == 3


@pytest.mark.slow
def test_an_evaluation_answers_by_class_and_draws_the_surest_mistakes(run, tmp_path):
    told = evaluate(Eval(run=run, out=tmp_path / "out"))
    exact = open_run(run).evaluate()
    assert told["accuracy"] == exact.top1
    assert told["loss"] == pytest.approx(exact.loss, rel=1e-5, abs=1e-6)  # from probabilities near 1
    assert told["top5"] == exact.top5
    record = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    confusion = np.array(record["confusion"])
    assert confusion.sum() == exact.images
    assert confusion.trace() / confusion.sum() == exact.top1
    rows = list(csv.reader((tmp_path / "out" / "confusion.csv").read_text().splitlines()))
    assert rows[0][1:] == ["red", "green", "blue"]
    assert [[int(cell) for cell in row[1:]] for row in rows[1:]] == confusion.tolist()
    mistakes = exact.images - confusion.trace()
    assert len(record["mistakes"]) == mistakes
    assert (tmp_path / "out" / "mistakes.webp").exists() == bool(mistakes)
    if mistakes:
        assert Image.open(tmp_path / "out" / "mistakes.webp").format == "WEBP"


@pytest.mark.slow
def test_some_of_the_classes_in_any_order_are_enough_and_others_are_named(run, small_data, tmp_path):
    whole = ImageSet.open(small_data, "validation")
    chosen = [i for i in range(len(whole)) if whole.classes[whole.labels[i]] != "green"]

    def prepared(name, classes, number):
        images = [(whole.image(i).tobytes(), number(whole.classes[whole.labels[i]]), str(i)) for i in chosen]
        (tmp_path / name).mkdir()
        shards = write_split(tmp_path / name, "validation", images, count=len(images))
        write_manifest(tmp_path / name, classes, {"validation": shards}, plan=name)
        return str(tmp_path / name)

    two = prepared("two", ["blue", "red"], ["blue", "red"].index)
    told = evaluate(Eval(run=run, data=two, out=tmp_path / "out"))
    trained = open_run(run)
    probabilities = np.asarray(trained.step.predict(trained.state, trained.validation_pixels(len(whole))))
    right = probabilities.argmax(1) == whole.labels
    assert told["images"] == len(chosen)
    assert told["accuracy"] == right[chosen].mean()
    assert trained.evaluate(two).top1 == told["accuracy"]
    other = prepared("other", ["blau", "red"], lambda name: int(name == "red"))
    with pytest.raises(
        UserError, match=r"has 1 classes that the run does not know \(blau\); it knows red, green, blue"
    ):
        trained.evaluate(other)


def test_files_folders_and_patterns_are_found(photos):
    assert len(find_images([photos])) == 13
    assert [file.name for file in find_images([f"{photos}/*/*.jpg"])] == ["07.jpg", "08.jpg", "09.jpg", "10.jpg"]
    assert find_images([photos / "notes.txt"]) == [photos / "notes.txt"]  # who names a file means it
    (photos / "none").mkdir()
    for given, message in [
        ("none", "is a folder without images"),
        ("absent.jpg", "there is no file"),
        ("*.bmp", r"the pattern .*\*\.bmp matches no file"),
    ]:
        with pytest.raises(UserError, match=message):
            find_images([f"{photos}/{given}"])


def test_what_is_no_checkpoint():
    assert [which_checkpoint(word) for word in ("newest", "best", "12")] == ["newest", "best", 12]
    with pytest.raises(UserError, match="'latest' must be newest, best or the step"):
        which_checkpoint("latest")
    with pytest.raises(UserError, match="--top 0 must be at least 1"):
        Predict(run=Path(), images=("x",), top=0).check()
    assert jpeg(1)


def test_shipped_recipes_are_listed_and_shown(capsys):
    listed = recipes(Recipes())
    assert set(listed) == set(shipped())
    assert listed["demo"].startswith("The demo")
    shown = recipes(Recipes(name="cifar10-sgd"))
    assert shown["model"]["name"] == "resnet7"
    out = capsys.readouterr().out
    assert "# Hardware: two CPU cores" in out  # with its comments
    assert tomllib.loads(out.partition("trains it\n")[2])["epochs"] == shown["epochs"]
    with pytest.raises(UserError, match="there is no recipe 'cifar'"):
        recipes(Recipes(name="cifar"))
