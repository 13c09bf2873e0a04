"""The page of a run, from files as a run leaves them: complete, escaped, and without a word to any network."""

import json
import re

import pytest
from tests.support.run_files import write_run

from podium.errors import UserError
from podium.report.run_page import run_page

ASSET = re.compile(r"<script>var uPlot|/\*! https://github.com/leeoniya/uPlot")


def charts(page):
    return json.loads(page.partition('id="charts">')[2].partition("</script>")[0])


def test_a_run_has_its_curves_recipe_data_machine_and_mistakes(tmp_path):
    page = run_page([write_run(tmp_path / "run", evaluated=True)])
    titles = [chart["title"] for chart in charts(page)]
    assert titles == [
        "Accuracy", "Loss", "Learning rate", "Throughput", "Waiting for input", "Gradient norm", "Calibration",
    ]  # fmt: skip
    accuracy = charts(page)[0]["series"]
    assert [line["label"] for line in accuracy] == ["training", "top-1"]
    assert accuracy[1]["y"] == [0.3, 0.6]
    assert "Training&#x27;s loss is of smoothed labels" in page
    for text in ("optimizer.learning_rate", "cat taken for dog: 2", "data:image/webp;base64,", "resumed after step 10",
                 "60.00%", "a &lt;b&gt; cat", "After step 10: torus 1x1 → 1x2", "content hash"):  # fmt: skip
        assert text in page, text


def test_nothing_is_fetched(tmp_path):
    page = run_page([write_run(tmp_path / "run", evaluated=True)])
    assert "default-src 'none'" in page
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)|url\(|@import""", outside)
    assert ASSET.search(page)


def test_several_runs_are_compared_differences_of_recipes_first(tmp_path):
    runs = [
        write_run(tmp_path / "slow"),
        write_run(tmp_path / "fast", changes={"optimizer": {"name": "sgd", "learning_rate": 0.4}}),
    ]
    page = run_page(runs)
    body = page.partition("<body>")[2]
    places = [body.index(text) for text in ("What differs in their recipes", "Results", "Curves", "slow, in full")]
    assert places == sorted(places)
    first = body[places[0] : places[1]]
    assert "optimizer.learning_rate" in first
    assert "0.1" in first
    assert "0.4" in first
    assert "batch_global" not in first
    assert [line["label"] for line in charts(page)[2]["series"]] == ["slow, learning rate", "fast, learning rate"]
    assert "Nothing: the recipes are the same." in run_page([runs[0], runs[0]])


def test_a_run_that_has_just_begun_has_a_page_too(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text('{"event": "tr')
    page = run_page([run])
    assert charts(page) == []
    assert "podium eval RUN adds accuracy by class" in page


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        run_page([tmp_path])
