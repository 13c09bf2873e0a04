"""Podium under Open MPI's mpirun, Debian's (4) and PyPI's (5): four ranks, one of them killed, the launch script as
users run it; the result is that of four ranks which nothing happened to."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support.processes import ended, metrics, podium
from tests.support.slurm import find_process, until
from tests.support.small import argument_list

from podium.train.checkpoint_files import complete_steps

SCRIPT = Path(__file__).parents[2] / "cluster" / "mpirun.sh"
BIN = Path(sys.executable).parent
VERSIONS = {"4": Path("/usr/bin"), "5": BIN}

pytestmark = pytest.mark.cluster


@pytest.fixture(params=list(VERSIONS))
def mpirun(request, tmp_path):
    """Starts the launch script with four ranks on this machine."""
    folder = VERSIONS[request.param]
    if not (folder / "mpirun").exists():
        pytest.skip(f"no Open MPI {request.param} in {folder}; make test-cluster installs it")

    def start(*arguments: str) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {
            "PATH": f"{folder}:{os.environ['PATH']}", "PODIUM": str(BIN / "podium"), "JAX_PLATFORMS": "cpu",
            "HOSTS": ",".join(["localhost"] * 4),
            "MPIRUN_FLAGS": "--oversubscribe" + " --allow-run-as-root" * (os.geteuid() == 0),
        }  # fmt: skip
        assert shutil.which("mpirun", path=environment["PATH"]) == str(folder / "mpirun")
        return subprocess.Popen(
            [SCRIPT, *arguments],
            env=environment, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return start


def test_four_ranks_train_as_one_and_a_killed_one_changes_nothing(mpirun, small_data, tmp_path):
    arguments = argument_list(tmp_path, small_data)
    undisturbed, run, alone = tmp_path / "undisturbed", tmp_path / "run", tmp_path / "alone"
    first = ended(mpirun("train", *arguments, "--run", str(undisturbed)))
    assert first.code == 0, first.err
    assert first.out.count("top-1 accuracy") == 1  # one rank speaks

    started = mpirun("train", *arguments, "--run", str(run))
    until(lambda: complete_steps(run / "checkpoints"), alive=lambda: started.poll() is None)
    rank_0 = find_process({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "PODIUM": str(BIN / "podium")})
    assert rank_0 is not None
    rank_0.kill()
    second = ended(started)
    assert second.code == 0, second.err
    assert "started again, 9 restarts left" in second.err
    assert "resumes after step" in second.out

    ends = [json.loads((where / "summary.json").read_text()) for where in (run, undisturbed)]
    assert ends[0]["weights_hash"] == ends[1]["weights_hash"]
    assert ended(podium("train", *arguments, "--run", str(alone))).code == 0
    ours, theirs = ([line["loss"] for line in metrics(where)] for where in (run, alone))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)  # rounding of sums in another order, grown over 48 steps
