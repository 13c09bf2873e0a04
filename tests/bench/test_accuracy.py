"""The accuracy study: every row is a recipe that can run, one is trained for real, and the page shows the results."""

import json

import pytest

from podium.bench import accuracy, accuracy_page
from podium.bench.accuracy import ROWS, Row
from podium.bench.step_case import CASES
from podium.errors import UserError
from podium.recipe.reading import load_recipe, to_dict

PAGE = "".join(f"# {table}\n<!-- table {table} -->\n<!-- end -->\n" for table in accuracy_page.TABLES)


def result(name, *values, losses=()):
    runs = [
        {"seed": i, "accuracy": value, "losses": list(losses), "evaluations": [[1.0, value]], "diverged": "NaN"}
        for i, value in enumerate(values)
    ]
    row = {"row": name, "processes": ROWS[name].processes, "runs": runs}
    return {**row, "recipe": to_dict(ROWS[name].recipe())}


def write(folder, *results):
    folder.mkdir(exist_ok=True)
    for r in results:
        (folder / f"{r['row']}.json").write_text(json.dumps(r))
    return folder


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_a_recipe_that_fits_its_torus(name):
    recipe = ROWS[name].recipe()
    assert recipe.batch_global % recipe.model.norm_span == 0
    assert ROWS[name].table in accuracy_page.TABLES


def test_the_step_benchmark_measures_the_recipes_network():
    case, recipe = CASES["cifar"], load_recipe("cifar10-sgd")
    assert (case.model, case.stem) == (recipe.model.name, recipe.model.stem)
    assert (case.image_size, case.batch) == (recipe.data.image_size, recipe.batch_global)


def test_rows_of_a_table_differ_only_in_what_the_table_is_about():
    span_4, span_64 = (to_dict(ROWS[f"span-{s}"].recipe()) for s in (4, 64))
    assert span_4.pop("model") == {**span_64.pop("model"), "norm_span": 4}
    assert span_4 == span_64
    whole, sharded = (to_dict(ROWS[f"chips-4x4-{n}"].recipe()) for n in ("torus", "sharded"))
    assert (whole.pop("weight_update"), sharded.pop("weight_update")) == ("replicated", "sharded")
    assert whole == sharded
    lars, sgd = (ROWS[n].recipe() for n in ("batch-4096-lars-8", "batch-4096-sgd-6.08"))
    assert (lars.optimizer.name, lars.optimizer.weight_decay) == ("lars", sgd.optimizer.weight_decay)
    assert (lars.epochs, lars.schedule, lars.model) == (sgd.epochs, sgd.schedule, sgd.model)
    slow = ROWS["batch-4096-sgd-6.08-slow"].recipe()
    assert slow.schedule.warmup_epochs == 2 * sgd.schedule.warmup_epochs
    assert (slow.epochs, slow.optimizer, slow.model) == (sgd.epochs, sgd.optimizer, sgd.model)


# Takes seconds: 24 steps on the tests' images, on a 1×2 torus of two processes.
SMALL = Row(
    "span",
    ("model.name=resnet7-narrow", "model.norm_span=8", "epochs=4", "schedule.warmup_epochs=1", "batch_global=16",
     "torus=1x2", "log_every_steps=1", "data.image_size=16"),
    processes=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def trained(small_data, tmp_path_factory):
    """The small row, trained once in the place of span-4: (folder of results and runs, what `run` gave and said)."""
    folder = tmp_path_factory.mktemp("accuracy")
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ROWS, "span-4", SMALL)
        written = accuracy.run(["span-4"], small_data, folder / "results", runs=folder / "runs", say=said.append)
    return folder, written, said


@pytest.mark.slow
def test_a_row_trains_from_its_name(trained):
    folder, written, said = trained
    reached = written[0]["runs"][0]
    assert json.loads((folder / "results/span-4.json").read_text()) == written[0]
    assert [step for step, _ in reached["losses"]] == list(range(1, 25))
    assert reached["accuracy"] == reached["evaluations"][-1][1] > 0.3
    assert said == [f"span-4, seed 0: {reached['accuracy']:.2%}"]


@pytest.mark.slow
def test_a_finished_run_is_read_and_joins_the_results_of_other_seeds(trained, monkeypatch, tmp_path):
    folder, written, _ = trained
    monkeypatch.setitem(ROWS, "span-4", SMALL)
    other = {**written[0], "runs": [{"seed": 0, "accuracy": 0.0}, {"seed": 5, "accuracy": 0.4}]}
    (tmp_path / "span-4.json").write_text(json.dumps(other))
    again = accuracy.run(["span-4"], "no data is needed", tmp_path, runs=folder / "runs", say=lambda _: None)
    assert [run["seed"] for run in again[0]["runs"]] == [0, 5]
    assert again[0]["runs"][0]["accuracy"] == written[0]["runs"][0]["accuracy"]


@pytest.mark.slow
def test_results_of_what_a_row_was_before_are_dropped(trained, monkeypatch, tmp_path):
    folder, written, _ = trained
    monkeypatch.setitem(ROWS, "span-4", SMALL)
    before = {**written[0], "recipe": {**written[0]["recipe"], "label_smoothing": 0.5}, "runs": [{"seed": 5}]}
    write(tmp_path, before)
    assert accuracy_page.read(tmp_path) == {}
    again = accuracy.run(["span-4"], "no data is needed", tmp_path, runs=folder / "runs", say=lambda _: None)
    assert [run["seed"] for run in again[0]["runs"]] == [0]
    assert list(accuracy_page.read(tmp_path)) == ["span"]


@pytest.mark.slow
def test_a_finished_run_of_another_recipe_is_not_taken_for_the_row(trained, monkeypatch, tmp_path):
    monkeypatch.setitem(ROWS, "span-4", Row("span", (*SMALL.changes, "optimizer.learning_rate=0.5")))
    with pytest.raises(UserError, match="holds a run of another recipe"):
        accuracy.run(["span-4"], tmp_path, tmp_path, runs=trained[0] / "runs")


@pytest.mark.slow
def test_a_run_that_diverges_is_a_result_and_other_failures_are_not(small_data, monkeypatch, tmp_path):
    monkeypatch.setitem(ROWS, "span-4", Row("span", (*SMALL.changes, "optimizer.learning_rate=1e30")))
    runs = accuracy.run(["span-4"], small_data, tmp_path, runs=tmp_path / "runs", say=lambda _: None)[0]["runs"]
    assert runs[0]["accuracy"] is None
    assert runs[0]["diverged"].startswith("the loss is")
    with pytest.raises(UserError, match="row span-4, seed 0 was not trained"):
        accuracy.run(["span-4"], tmp_path / "nothing", tmp_path, runs=tmp_path / "more")


def test_an_unknown_row_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(UserError, match=r"there is no row 'span4' \(did you mean span-4\?\)"):
        accuracy.run(["span4"], tmp_path, tmp_path, runs=tmp_path)


def test_the_page_shows_mean_and_spread_and_is_stable(tmp_path):
    folder = write(tmp_path / "results", result("span-4", 0.70, 0.71, 0.72), result("span-64", 0.75))
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    accuracy_page.redraw(page, folder)
    first = page.read_text()
    assert "| 4 | 1 (local) | 71.00 ± 1.00 (3 seeds) |\n| 64 | 16 | 75.00 |" in first
    assert first.count("<!-- table") == PAGE.count("<!-- table")
    accuracy_page.redraw(page, folder)
    assert page.read_text() == first


@pytest.mark.parametrize(("name", "most"), [("cifar10", 0.20e15), ("cifar10-94", 0.30e15)])
def test_the_recipes_of_cifar10_keep_to_their_work(name, most):
    recipe = load_recipe(name).for_data(10, 50_000, 10_000)
    assert 0.98 * most < accuracy_page.counted_flops(recipe) <= most


def test_the_work_of_recipes_is_told_and_drawn(tmp_path):
    sgd, muon = result("baseline", 0.906), result("cifar10", 0.93, 0.94)
    for run in [*sgd["runs"], *muon["runs"]]:
        run |= {"train_flops": 1.98e14, "train_seconds": 600.0, "evaluations": [[2.75, 0.8], [5.5, run["accuracy"]]]}
    rows = accuracy_page.read(write(tmp_path, sgd, muon))["work"]
    table = accuracy_page.TABLES["work"](rows)
    assert "| `cifar10-sgd` | resnet7 | sgd | 10 | 0.198 | 10 | 90.60 |" in table
    assert "| `cifar10` | plain7-wide | muon | 5.5 | 0.198 | 10 | 93.50 ± 0.71 (2 seeds) |" in table
    picture = accuracy_page.PLOTS["work"](rows)
    assert "<title>0.099 PFLOP, of convolutions and products: 80</title>" in picture
    assert picture.count("line dashed") == 2


def test_the_best_setting_of_each_batch_and_optimizer_is_marked(tmp_path):
    rows = [result("batch-256-sgd-0.38", 0.74), result("batch-256-sgd-0.19", 0.71), result("batch-256-lars-2", None)]
    table = accuracy_page.TABLES["batch"](accuracy_page.read(write(tmp_path, *rows))["batch"])
    assert "| 256 | 2344 | SGD | 0.38 | 2.4 | **74.00** |" in table
    assert "| 256 | 2344 | SGD | 0.19 | 2.4 | 71.00 |" in table
    assert "| 256 | 2344 | LARS | 2 | 2.4 | **diverged: NaN** |" in table


def test_loss_curves_are_compared_with_one_chip(tmp_path):
    rows = [
        result("chips-1x1-xla", 0.6, losses=[[1, 2.0], [11, 1.5]]),
        result("chips-4x4-ring", 0.6, losses=[[1, 2.0], [11, 1.25]]),
    ]
    table = accuracy_page.TABLES["chips"](accuracy_page.read(write(tmp_path, *rows))["chips"])
    assert "| 4x4 ring | 0.0e+00 | 2.5e-01 | 60.00 |" in table


def test_rows_of_several_processes_say_so(tmp_path):
    rows = [result(name, 0.6, losses=[[1, 2.0]]) for name in ("chips-1x1-xla", "chips-4x4-sharded", "processes-4-xla")]
    table = accuracy_page.TABLES["chips"](accuracy_page.read(write(tmp_path, *rows))["chips"])
    assert "| 4x4 torus, sharded update |" in table
    assert "| 2x2 xla, 4 processes |" in table


def test_a_page_without_a_place_for_a_table_is_refused(tmp_path):
    folder = write(tmp_path / "results", result("span-4", 0.7))
    (tmp_path / "page.md").write_text("nothing here")
    with pytest.raises(UserError, match="no place for table span"):
        accuracy_page.redraw(tmp_path / "page.md", folder)
