"""Podium on a real Slurm of four nodes: the launch file as users submit it, the same losses as four simulated chips,
and an identical result after a lost process and after the end of the time."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support import slurm as one_machine
from tests.support.processes import ended, metrics, podium
from tests.support.small import argument_list

from podium.train.checkpoint_files import complete_steps

SCRIPT = Path(__file__).parents[2] / "cluster" / "slurm.sbatch"
NODE_ENVIRONMENT = {"PODIUM": str(Path(sys.executable).with_name("podium")), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(one_machine.missing()), reason=one_machine.missing()),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with one_machine.started(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture(scope="module")
def arguments(tmp_path_factory, small_data):
    return argument_list(tmp_path_factory.mktemp("recipe"), small_data)


@pytest.fixture(scope="module")
def undisturbed(slurm, arguments):
    """A run on four nodes that nothing happens to."""
    run = slurm.folder / "undisturbed"
    job = slurm.submit(SCRIPT, "train", *arguments, "--run", str(run), **NODE_ENVIRONMENT)
    assert job.wait()["ExitCode"] == "0:0", job.log
    return run, job


def test_the_doctor_finds_four_nodes_fit(slurm, arguments):
    job = slurm.submit(SCRIPT, "doctor", *arguments, **NODE_ENVIRONMENT)
    assert job.wait()["ExitCode"] == "0:0", job.log  # 1 would be red
    assert "in 4 processes" in job.log
    assert "coordinator podium-n1:" in job.log
    assert "torus 2x2: 4 × 1 simulated chips, 4 images each" in job.log
    assert job.log.count("all-reduce") == 1  # one process speaks


def test_four_nodes_reach_the_losses_of_four_chips_in_one_process(undisturbed, arguments, tmp_path):
    run, job = undisturbed
    assert ended(podium("train", *arguments, "--run", str(tmp_path / "alone"))).code == 0
    losses = [[line["loss"] for line in metrics(where)] for where in (run, tmp_path / "alone")]
    assert len(losses[0]) == 48
    np.testing.assert_allclose(losses[0][:6], losses[1][:6], rtol=1e-5)
    np.testing.assert_allclose(
        losses[0], losses[1], rtol=1e-3
    )  # rounding of sums in another order, grown over 48 steps
    assert metrics(run, "hosts")[-1]["processes"] == 4
    assert job.log.count("top-1 accuracy") == 1  # one process speaks


def test_a_job_that_loses_a_process_and_then_its_time_ends_with_the_same_weights(slurm, undisturbed, arguments):
    run = slurm.folder / "disturbed"
    job = slurm.submit(SCRIPT, "train", *arguments, "--run", str(run), **NODE_ENVIRONMENT)
    job.wait_for(lambda: complete_steps(run / "checkpoints"))
    job.process(rank=2).kill()
    job.requeued(times=1)
    reached = complete_steps(run / "checkpoints")[-1]
    job.wait_for(lambda: (complete_steps(run / "checkpoints") or [0])[-1] > reached)
    slurm.run("scancel", "--signal=TERM", job.number)  # what --signal does before the time is up
    job.requeued(times=2)
    assert job.wait()["ExitCode"] == "0:0", job.log
    assert "podium ended with 137; queued again" in job.log
    assert "podium ended with 75; queued again" in job.log
    assert f"resumes after step {reached}" in job.log
    ends = [json.loads((where / "summary.json").read_text()) for where in (run, undisturbed[0])]
    assert ends[0]["weights_hash"] == ends[1]["weights_hash"]


def test_a_mistake_is_not_queued_again(slurm, arguments):
    job = slurm.submit(SCRIPT, "train", *arguments, "--set", "epochz=3", **NODE_ENVIRONMENT)
    assert job.wait()["ExitCode"] == "2:0", job.log
    assert "unknown key epochz" in job.log
    assert job.about()["Restarts"] == "0"
