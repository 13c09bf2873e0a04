"""Several processes train as one: the same losses as simulated chips, one of them reports, and a stranger is named."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from tests.support.processes import RECIPE, free_port, metrics, train_together
from tests.support.sharded import in_shards

from podium.errors import UserError
from podium.processes.join import Cluster, join
from podium.recipe.reading import load_recipe
from podium.train.run import train_recipe

pytestmark = pytest.mark.slow


@pytest.fixture
def arguments(tmp_path, small_data):
    """The arguments of one process, but for its --run."""
    (tmp_path / "small.toml").write_text(RECIPE)
    return ["--recipe", str(tmp_path / "small.toml"), "--data", str(small_data)]


@pytest.fixture(scope="module")
def together(small_data, tmp_path_factory):
    """A run of two processes: (its directory, how each ended)."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "small.toml").write_text(RECIPE)
    arguments = ["--recipe", str(folder / "small.toml"), "--data", str(small_data), "--run", str(folder / "run")]
    sharded = ["--set", "weight_update=sharded", "--set", "reduce=torus"]
    return folder / "run", train_together(*[[*arguments, *sharded]] * 2)


def test_two_processes_train_as_one_and_one_of_them_reports(together, small_data, tmp_path):
    run, (first, second) = together
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert second.out == ""
    assert json.loads(first.out.splitlines()[-1])["run"] == str(run)
    assert "Gloo" not in first.out

    (tmp_path / "small.toml").write_text(RECIPE)
    train_recipe(load_recipe(str(tmp_path / "small.toml")), small_data, tmp_path / "alone")
    ours, theirs = ([line["loss"] for line in metrics(where)] for where in (run, tmp_path / "alone"))
    assert len(ours) == 12
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert metrics(run, "evaluation")[0]["images"] == 22


def test_process_0_tells_of_all_processes(together):
    hosts = metrics(together[0], "hosts")[-1]
    assert hosts["processes"] == 2
    assert 0 <= hosts["input_wait_seconds"] <= hosts["input_wait_seconds_most"]
    assert hosts["memory_bytes_most"] > 10**7


def test_a_process_with_another_recipe_is_named_before_the_first_step(arguments, tmp_path):
    run = tmp_path / "run"
    both = train_together(
        [*arguments, "--run", str(run)], [*arguments, "--run", str(run), "--set", "label_smoothing=0.1"]
    )
    for process in both:
        assert process.code == 2
        assert "process 1 on" in process.err
        assert "has a different recipe from process 0" in process.err
    assert not run.exists()


def test_a_process_opens_the_shards_of_its_share_alone(together, arguments, small_data, tmp_path):
    """The copy that process 1 has of the data lacks what process 0 alone needs."""
    data, copy = in_shards(small_data, tmp_path / "data", train=8, validation=4), tmp_path / "copy"
    shutil.copytree(data, copy)
    for file in ("train-00000", "train-00001", "train-00002", "validation-00000", "validation-00003"):
        next(copy.glob(f"{file}-*.arrow")).unlink()
    run = ["--run", str(tmp_path / "run"), "--set", "weight_update=sharded", "--set", "reduce=torus"]
    both = train_together([*arguments, *run, "--data", str(data)], [*arguments, *run, "--data", str(copy)])
    assert [process.code for process in both] == [0, 0], both[0].err + both[1].err
    hashes = [
        json.loads((where / "summary.json").read_text())["weights_hash"] for where in (tmp_path / "run", together[0])
    ]
    assert hashes[0] == hashes[1]


def test_a_process_whose_copy_of_the_data_lacks_a_shard_ends_all(arguments, small_data, tmp_path):
    copy, run = tmp_path / "copy", ["--run", str(tmp_path / "run")]
    shutil.copytree(small_data, copy)
    next(copy.glob("validation-*.arrow")).unlink()
    both = train_together([*arguments, *run], [*arguments, *run, "--data", str(copy)])
    for process in both:
        assert process.code == 2
        assert "is damaged ([Errno 2] No such file or directory" in process.err
        assert "copy it again or prepare the data again (process 1 on" in process.err
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_not_where_all_processes_see_it_ends_all(arguments, tmp_path):
    """The same relative path from two folders: process 0 makes the run, and process 1 looks for it elsewhere."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere" / "deeper"
    for folder in (here, elsewhere):
        folder.mkdir(parents=True)
    for process in train_together(*[[*arguments, "--run", "../run"]] * 2, folders=(here, elsewhere)):
        assert process.code == 2
        assert (
            "../run/checkpoints could not be written: No such file or directory; choose another --run (process 1 on"
            in process.err
        )
    assert not (elsewhere.parent / "run").exists()


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (Cluster("node1:4000"), "only --coordinator given; a process needs"),
        (Cluster("node1", 2, 0), "--coordinator 'node1' is not HOST:PORT"),
        (Cluster("node1:99999", 2, 0), "is not HOST:PORT"),
        (Cluster("node1:4000", 2, 2), "--process 2 must be from 0 to 1"),
        (Cluster("no-such-host.invalid:4000", 2, 0), "no-such-host.invalid is not found from"),
    ],
)
def test_half_a_cluster_is_refused_in_one_line(cluster, message):
    with pytest.raises(UserError, match=message):
        join(cluster)


def test_a_process_with_another_torus_is_named_before_its_devices_start(arguments, tmp_path):
    run = ["--run", str(tmp_path / "run")]
    for process in train_together([*arguments, *run], [*arguments, *run, "--set", "torus=1x4"]):
        assert process.code == 2
        assert "process 1 on" in process.err
        assert "has a different recipe from process 0" in process.err


JOINED = """
from jax._src.xla_bridge import CUDA_VISIBLE_DEVICES
from podium.processes.join import Cluster, join, process_count, runtime
join(Cluster())
state = runtime()
print(process_count(), state.process_id, state.coordinator_address, repr(CUDA_VISIBLE_DEVICES.value))
"""


def joined(**environment: str) -> list[str]:
    """How a single process with this environment joins: processes, process, coordinator, visible GPUs."""
    done = subprocess.run(
        [sys.executable, "-c", JOINED], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_open_mpi_5_is_recognised_by_what_it_sets():
    ranks = {f"OMPI_COMM_WORLD_{name}": "1" for name in ("SIZE", "LOCAL_SIZE")}
    ranks |= {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    found = joined(PMIX_NAMESPACE="prterun-login-node-2-70000@1", **ranks)
    assert found == ["1", "0", f"127.0.0.1:{61440 + 70000 % 4096}", "'all'"]
    address = f"127.0.0.1:{free_port()}"
    assert joined(PMIX_NAMESPACE="prterun-a-1@1", JAX_COORDINATOR_ADDRESS=address, **ranks)[2] == address


@pytest.mark.parametrize(("tasks", "visible"), [("1", "'all'"), ("8", "'0'")])
def test_the_only_process_of_a_node_has_all_its_gpus(tasks, visible):
    # JAX takes the number of processes from SLURM_NTASKS; the other two tell how the step was laid out.
    step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "1"}
    step |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": tasks}
    assert joined(**step)[-1] == visible


def test_without_a_cluster_a_process_is_alone():
    assert joined() == ["1", "0", "None", "'all'"]
