"""Several processes train as one: the same losses as simulated chips, one of them speaks, and a stranger is named."""

import json

import numpy as np
import pytest
from tests.launch.processes import RECIPE, ended, metrics, podium, train_together

from podium.errors import UserError
from podium.launch.join import Cluster, join


@pytest.fixture
def arguments(tmp_path, small_data):
    """Of one process, but for its --run."""
    (tmp_path / "small.toml").write_text(RECIPE)
    return ["--recipe", str(tmp_path / "small.toml"), "--data", str(small_data)]


def test_two_processes_train_as_one_and_one_of_them_speaks(arguments, tmp_path):
    together, alone = tmp_path / "together", tmp_path / "alone"
    sharded = ["--set", "weight_update=sharded", "--set", "reduce=torus"]
    first, second = train_together(*[[*arguments, *sharded, "--run", str(together)]] * 2)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert second.out == ""
    assert json.loads(first.out.splitlines()[-1])["run"] == str(together)
    assert "Gloo" not in first.out

    assert ended(podium("train", *arguments, "--run", str(alone))).code == 0
    losses = [[line["loss"] for line in metrics(run)] for run in (together, alone)]
    assert len(losses[0]) == 12
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert metrics(together, "evaluation")[0]["images"] == 22


def test_a_process_with_another_recipe_is_named_before_the_first_step(arguments, tmp_path):
    run = tmp_path / "run"
    both = train_together(
        [*arguments, "--run", str(run)], [*arguments, "--run", str(run), "--set", "label_smoothing=0.1"]
    )
    for process in both:
        assert process.code == 2
        assert "process 1 on" in process.err
        assert "has another recipe than process 0" in process.err
    assert not run.exists()


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (Cluster("node1:4000"), "only --coordinator given; a process needs"),
        (Cluster("node1", 2, 0), "--coordinator 'node1' is not HOST:PORT"),
        (Cluster("node1:99999", 2, 0), "is not HOST:PORT"),
        (Cluster("node1:4000", 2, 2), "--process 2 must be from 0 to 1"),
    ],
)
def test_half_a_cluster_is_refused_in_one_line(cluster, message):
    with pytest.raises(UserError, match=message):
        join(cluster)
