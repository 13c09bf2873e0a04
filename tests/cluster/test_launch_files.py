"""The launch files that cannot be tried here, as far as they can: the Kubernetes manifest against its published types,
and the scripts' arguments and restarts with a stand-in for gcloud."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

CLUSTER = Path(__file__).parents[2] / "cluster"


@pytest.fixture
def jobset() -> dict[str, Any]:
    return yaml.safe_load((CLUSTER / "jobset.yaml").read_text())


def test_every_line_of_the_manifest_is_known_to_jobset(jobset):
    read = JobsetV1alpha2JobSet.from_dict(jobset)
    assert read is not None
    assert read.to_dict() == jobset  # a misspelt field would be left out


def test_every_pod_finds_pod_0_by_the_name_that_jobset_gives_it(jobset):
    (job,) = jobset["spec"]["replicatedJobs"]
    of_job = job["template"]["spec"]
    (container,) = of_job["template"]["spec"]["containers"]
    given = dict(argument.split("=", 1) for argument in container["args"][1:])
    host, port = given["--coordinator"].split(":")
    # JOBSET-REPLICATEDJOB-JOB-POD in the subdomain of the headless service, which has the JobSet's name
    assert host == f"{jobset['metadata']['name']}-{job['name']}-0-0.{jobset['metadata']['name']}"
    assert jobset["spec"]["network"]["enableDNSHostnames"]
    assert int(port) == container["ports"][0]["containerPort"]
    assert given["--process"] == f"$({container['env'][0]['name']})"
    assert of_job["completionMode"] == "Indexed"
    assert int(given["--processes"]) == of_job["parallelism"] == of_job["completions"]
    assert job["replicas"] == 1


def test_one_failed_pod_restarts_all_but_a_mistake_ends_the_jobset(jobset):
    of_job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert of_job["backoffLimit"] == 0
    assert of_job["template"]["spec"]["restartPolicy"] == "Never"
    (rule,) = of_job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"] == {"containerName": "podium", "operator": "In", "values": [2]}
    (policy,) = jobset["spec"]["failurePolicy"]["rules"]
    assert (policy["action"], policy["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])


@pytest.fixture
def tpu_vm(tmp_path):
    """Runs the TPU script where gcloud ends with the given codes, one after the other: (exit code, gcloud's calls)."""
    gcloud = tmp_path / "gcloud"
    gcloud.write_text('#!/bin/sh\nprintf "%s\\n" "$*" >> calls\nread -r code < codes\nsed -i 1d codes\nexit "$code"\n')
    gcloud.chmod(0o755)

    def run(codes: list[int], *arguments: str, **environment: str) -> tuple[int, list[str]]:
        (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run(
            [CLUSTER / "tpu-vm.sh", *arguments],
            cwd=tmp_path,
            env={"PATH": path, "TPU": "pod", "ZONE": "z", **environment},
            check=False,
        )
        calls = tmp_path / "calls"
        return done.returncode, calls.read_text().splitlines() if calls.exists() else []

    return run


def test_every_tpu_worker_gets_the_same_command_with_its_words_kept(tpu_vm):
    code, (call,) = tpu_vm([0], "train", "--run", "/shared/my run")
    assert code == 0
    assert call.startswith(
        "compute tpus tpu-vm ssh pod --zone=z --worker=all --command=podium train --run /shared/my\\ run"
    )


@pytest.mark.parametrize(
    ("codes", "arguments", "expected", "starts"),
    [
        ([70, 75, 0], ["train", "--run", "r"], 0, 3),
        ([2], ["train", "--run", "r"], 2, 1),
        ([70, 70, 70], ["train", "--run=r"], 70, 3),
        ([1], ["doctor"], 1, 1),
        ([], ["train"], 2, 0),
    ],
)
def test_what_can_go_on_is_started_again_on_the_tpu_and_nothing_else(tpu_vm, codes, arguments, expected, starts):
    code, calls = tpu_vm(codes, *arguments, RESTARTS="2")
    assert (code, len(calls)) == (expected, starts)
