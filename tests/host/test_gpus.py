import os
import stat
import subprocess
import sys

import pytest

from podium.errors import UserError
from podium.host import accelerators, gpus
from podium.processes import join, launch


@pytest.mark.parametrize(
    ("processes", "there", "visible", "shares"),
    [
        (8, 8, None, ["0", "1", "2", "3", "4", "5", "6", "7"]),
        (2, 8, None, ["0,1,2,3", "4,5,6,7"]),
        (2, 8, "6,1", ["6", "1"]),
        (1, 4, "GPU-ab,GPU-cd", ["GPU-ab,GPU-cd"]),
        (3, 8, None, []),
        (4, 2, None, []),
        (2, 8, "", []),
    ],
)
def test_gpus_are_shared_out_equally_or_not_at_all(processes, there, visible, shares):
    assert gpus.share_out(processes, there, visible) == shares


@pytest.fixture
def with_gpus(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(launch, "nvidia_files", lambda: [f"/dev/nvidia{k}" for k in range(8)])
    monkeypatch.setattr(accelerators, "nvidia_files", lambda: [f"/dev/nvidia{k}" for k in range(8)])


def test_every_process_of_a_launch_has_gpus_of_its_own(with_gpus, monkeypatch):
    assert launch._environments(4)[3] == {"CUDA_VISIBLE_DEVICES": "6,7"}
    with pytest.raises(UserError, match="-n 3 processes cannot share 8 GPUs equally"):
        launch._environments(3)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert launch._environments(3) == [{}] * 3


def test_an_accelerator_that_jax_does_not_use_is_named_with_what_to_install(with_gpus, monkeypatch):
    assert str(accelerators.unused_accelerator("cpu")).startswith("/dev/nvidia0 is there")
    assert "EXTRAS=cuda12" in str(accelerators.unused_accelerator("cpu"))
    assert accelerators.unused_accelerator("gpu") is None
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert accelerators.unused_accelerator("cpu") is None


def test_sums_in_one_order_are_not_left_to_nvlinks_switches(monkeypatch):
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    with pytest.raises(UserError, match="cannot hold with NCCL_NVLS_ENABLE=1"):
        gpus.sum_in_one_order()
    monkeypatch.delenv("NCCL_NVLS_ENABLE")
    gpus.sum_in_one_order()
    assert os.environ["NCCL_NVLS_ENABLE"] == "0"
    gpus.sum_in_one_order()


def test_what_a_host_says_of_its_gpus(tmp_path, monkeypatch):
    (tmp_path / "version").write_text("570.86.15\n")
    assert gpus.driver_version(tmp_path / "version") == "570.86.15"
    assert gpus.driver_version(tmp_path / "none") == ""
    (tmp_path / "infiniband" / "mlx5_0").mkdir(parents=True)
    assert gpus.fabric(tmp_path / "infiniband") == ["mlx5_0"]
    monkeypatch.setenv("NCCL_IB_DISABLE", "1")
    assert gpus.fabric(tmp_path / "infiniband") == []


def test_memory_in_use_is_what_nvidia_smi_prints(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '5\\n81000\\n'\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert gpus.memory_used_bytes() == [5 << 20, 81000 << 20]
    assert gpus.memory_used_bytes("no-such-tool") == []


@pytest.mark.slow
@pytest.mark.parametrize(("files", "heard"), [("[]", False), ("['/dev/nvidia0']", True)])
def test_what_libraries_print_reaches_stderr_on_accelerators_and_nobody_on_cpus(files, heard):
    program = f"""
import os
os.environ.pop("JAX_PLATFORMS", None)
from podium.processes import join
join.accelerator_files = lambda: {files}
join._part_stdout()
os.write(1, b"NCCL INFO ring\\n")
print("ours")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "ours\n"
    assert ("NCCL INFO ring" in done.stderr) is heard


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "4"}, []),  # one task per node: all its GPUs
        ({"SLURM_STEP_NUM_TASKS": "32", "SLURM_STEP_NUM_NODES": "4"}, None),  # one per GPU: JAX takes the local rank's
        ({"SLURM_STEP_NUM_TASKS": "32", "SLURM_STEP_NUM_NODES": "4", "CUDA_VISIBLE_DEVICES": "5"}, []),  # shown one
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, []),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "3"}, [3]),
        ({}, None),
    ],
)
def test_a_process_takes_the_gpus_that_its_launcher_means(environment, devices, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "CUDA_VISIBLE")):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert join._local_devices() == devices
