"""What the doctor says: a table of facts and verdicts, then real processes, alone and two together."""

import dataclasses
import io
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console
from tests.support.processes import RECIPE, ended, podium, together
from tests.support.small_runs import small_recipe
from tests.support.snapshots import assert_snapshot

from podium.data.dataset.shards import ImageSet
from podium.doctor import observe
from podium.doctor.doctor import Report
from podium.doctor.finding import Finding
from podium.doctor.judge import judge_hosts, judge_work, worst
from podium.doctor.links import SUM_BYTES, expected_seconds
from podium.doctor.observe import Host, Work, addends, is_sum, observe_work
from podium.doctor.show import show
from podium.mesh import build_mesh
from podium.recipe.reading import load_recipe
from podium.recipe.torus import Shape, lay_out

HOST = Host(
    host="node0", versions={"podium": "0.1.0", "jax": "0.10.2"}, recipe="r", data="d", data_problem="",
    decoder="the native decoder (libjpeg-turbo)", decoder_is_native=True, coordinator="node0:4000",
    coordinator_address="10.0.0.1", own_address="10.0.0.2", memory_free_bytes=64 * 10**9,
    disk_free_bytes=10**12, accelerator_files=[],
)  # fmt: skip
WORK = Work(
    platform="cpu", devices=2, compute_seconds=0.01, all_reduce_seconds=0.002, all_reduce_is_right=True,
    checkpoint_bytes=200 * 10**6, images=1000, cache="pixels", cache_bytes=10**9, decode_threads=4,
    decode_images_per_second=2000.0, decode_problem="",
)  # fmt: skip
GPUS: dict[str, Any] = {
    "gpu_driver": "570.86",
    "gpu_memory_used_bytes": [5 << 20] * 8,
    "fabric": [f"mlx5_{k}" for k in range(8)],
}
SEVERAL = [dataclasses.replace(HOST, host=f"node{k}") for k in range(4)]


def verdicts(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.point: finding for finding in findings}


def hosts_with(process: int, **facts: Any) -> list[Host]:
    return [dataclasses.replace(h, **facts) if k == process else h for k, h in enumerate(SEVERAL)]


def work_of(hosts: list[Host], works: list[Work], need: float = 0.0) -> list[Finding]:
    return judge_work(hosts, works, torus="2x2x2", batch_global=64, need_images_per_second=need)


def test_four_hosts_alike_are_green():
    findings = judge_hosts(SEVERAL, [0.0] * 4, [True] * 4) + work_of(SEVERAL, [WORK] * 4, need=8000.0)
    assert [f for f in findings if f.level != "green"] == []
    assert worst(findings) == "green"
    assert "in 4 processes on 4 hosts" in verdicts(findings)["versions"].found


def test_gpus_that_are_free_and_well_connected_are_green():
    hosts = [dataclasses.replace(h, **GPUS) for h in SEVERAL]
    found = verdicts(judge_hosts(hosts, [0.0] * 4, [True] * 4))
    assert found["GPU memory"].level == found["GPU network"].level == "green"
    assert "GPU memory" not in verdicts(judge_hosts(SEVERAL, [0.0] * 4, [True] * 4))


@pytest.mark.parametrize(
    ("facts", "point", "words"),
    [
        ({"gpu_memory_used_bytes": [0, 0, 40 << 30]}, "GPU memory", "GPU 2 of node2 has 42.9 GB in use"),
        ({"fabric": []}, "GPU network", "NCCL on node2 goes over TCP"),
        ({"versions": {**HOST.versions, "NVIDIA driver": "560.1"}}, "versions", "has NVIDIA driver 560.1"),
        ({"versions": {**HOST.versions, "nvidia-nccl-cu12": "2.1"}}, "versions", "has nvidia-nccl-cu12 2.1"),
    ],
)
def test_a_host_whose_gpus_differ_is_named(facts, point, words):
    hosts = [dataclasses.replace(h, **GPUS) for h in SEVERAL]
    hosts[2] = dataclasses.replace(hosts[2], **facts)
    finding = verdicts(judge_hosts(hosts, [0.0] * 4, [True] * 4))[point]
    assert finding.level != "green"
    assert words in finding.found


def test_a_sum_is_held_against_what_the_links_should_give():
    # By hand: 64 MiB, 7/8 of it out and back in over NVLink at 450 GB/s, of which 80 % are reached.
    inside = 2 * 7 / 8 * SUM_BYTES / 450e9 / 0.8
    assert expected_seconds("NVIDIA H100 80GB HBM3", hosts=1, gpus_per_host=8) == pytest.approx(inside)
    outside = 2 * 3 / 4 * SUM_BYTES / 400e9 / 0.8
    assert expected_seconds("NVIDIA H100", hosts=4, gpus_per_host=8) == pytest.approx(inside + outside)
    assert expected_seconds("Some other card", hosts=4, gpus_per_host=8) == 0
    assert expected_seconds("NVIDIA H100", hosts=1, gpus_per_host=1) == 0
    for taken, level in ((1.9, "green"), (2.1, "yellow")):
        work = dataclasses.replace(WORK, platform="gpu", large_sum_seconds=taken * inside, expected_sum_seconds=inside)
        assert verdicts(work_of(SEVERAL, [work] * 4))["all-reduce"].level == level


@pytest.mark.parametrize(
    ("facts", "point", "level", "found"),
    [
        ({"versions": {"podium": "0.1.0", "jax": "0.10.1"}}, "versions", "red", "has jax 0.10.1, process 0 has 0.10.2"),
        ({"versions": {"jax": "0.10.2"}}, "versions", "red", "node2 has podium None"),
        ({"recipe": "other"}, "recipe", "red", "process 2 on node2 has a different one from process 0 on node0"),
        ({"data": "other"}, "data", "red", "process 2 on node2 has a different one from process 0 on node0"),
        ({"data_problem": "/data is not a directory"}, "data", "red", "process 2 on node2: /data is not a directory"),
        ({"coordinator_address": ""}, "names", "red", "process 2 on node2 does not know the name node0"),
        ({"coordinator_address": "127.0.0.1"}, "names", "red", "the coordinator node0 is 127.0.0.1, itself"),
        ({"own_address": "127.0.1.1"}, "names", "red", "its own name is 127.0.1.1"),
        ({"own_address": "::1", "accelerator_files": ["/dev/nvidia0"]}, "names", "yellow", "its own name is ::1"),
        ({"decoder_is_native": False, "decoder": "Pillow decodes"}, "decoder", "yellow", "node2: Pillow decodes"),
    ],
)  # fmt: skip
def test_a_host_unlike_the_others_is_named(facts, point, level, found):
    finding = verdicts(judge_hosts(hosts_with(2, **facts), [0.0] * 4, [True] * 4))[point]
    assert finding.level == level
    assert found in finding.found
    assert finding.advice


def test_loopback_is_fine_on_one_host():
    alike = [dataclasses.replace(HOST, coordinator_address="127.0.0.1", own_address="127.0.1.1")] * 4
    assert verdicts(judge_hosts(alike, [0.0] * 4, [True] * 4))["names"].level == "green"


@pytest.mark.parametrize(("seconds", "level"), [(-0.5, "green"), (5.0, "yellow"), (-400.0, "red")])
def test_clocks_that_disagree_are_found(seconds, level):
    assert verdicts(judge_hosts(SEVERAL, [0.0, 0.1, seconds, 0.0], [True] * 4))["clocks"].level == level


@pytest.mark.parametrize(("seen", "who"), [([False] * 4, "process 0"), ([True, True, True, False], "process 3")])
def test_a_run_directory_must_be_shared(seen, who):
    finding = verdicts(judge_hosts(SEVERAL, [0.0] * 4, seen))["run directory"]
    assert finding.level == "red"
    assert who in finding.found


@pytest.mark.parametrize(
    ("host", "work", "point", "level", "found"),
    [
        ({"disk_free_bytes": 5 * 10**8}, {}, "disk", "red", "0.5 GB free, 3 checkpoints need 0.6 GB"),
        ({"accelerator_files": ["/dev/accel0"]}, {}, "devices", "yellow", "though /dev/accel0 is there"),
        (
            {},
            {"decode_problem": "9 of 10 cannot be decoded"},
            "share of the data",
            "red",
            "process 1 on node1: 9 of 10",
        ),
        ({}, {"cache_bytes": 10**11}, "memory", "red", "node1: the cache of pixels needs 100.0 GB, 64.0 GB are free"),
        ({}, {"cache": "none", "cache_bytes": 0}, "memory", "yellow", "process 1 on node1 keeps nothing"),
        ({}, {"decode_images_per_second": 900.0}, "decoding", "yellow", "900 images/s on 4 threads"),
        ({}, {"compute_seconds": 0.018}, "compute", "yellow", "process 1 on node1 is 1.8× slower"),
        ({}, {"all_reduce_is_right": False}, "all-reduce", "red", "wrong"),
    ],
)
def test_what_the_work_shows_is_judged(host, work, point, level, found):
    hosts = [dataclasses.replace(h, **host) for h in SEVERAL]
    works = [dataclasses.replace(WORK, **work) if k == 1 else WORK for k in range(4)]
    finding = verdicts(work_of(hosts, works, need=4000.0))[point]
    assert finding.level == level
    assert found in finding.found
    assert finding.advice


def test_processes_of_one_host_share_its_memory():
    works = [dataclasses.replace(WORK, cache_bytes=20 * 10**9)] * 4
    assert verdicts(work_of([HOST] * 4, works))["memory"].level == "red"
    assert verdicts(work_of(SEVERAL, works))["memory"].level == "green"


@pytest.mark.parametrize("processes_here", [1, 2])
def test_the_processes_of_a_host_share_the_budget_of_its_cache(small_data, processes_here):
    """A budget that holds one process's pixels, and not those of two."""
    images = ImageSet.open(small_data, "train")
    pixels_gb = 3 * sum(int(width) * int(height) for width, height in images.sizes) / 1e9
    recipe = small_recipe(data={"image_size": 16, "cache_gb": 1.1 * pixels_gb / 0.75}).for_data(3, 96, 22)
    mesh = build_mesh(lay_out(Shape(1, 1), 16, 8), jax.devices()[:1])
    work = observe_work(recipe, mesh, small_data, processes_here=processes_here)
    assert (work.cache == "pixels") == (processes_here == 1)
    assert work.images == 96
    assert work.all_reduce_is_right


WRONG_SUMS = {
    "one chip counted twice, and one left out": lambda added: added[[0, 0, 2, 3]].sum(0),
    "one chip left out": lambda added: added[1:].sum(0),
    "one element lost": lambda added: added.sum(0) * (np.arange(added.shape[1]) != 1000),
    "two parts exchanged": lambda added: np.roll(added.sum(0), 512),
    "not summed": lambda added: added[0],
    "a number that is none": lambda added: np.where(np.arange(added.shape[1]) == 7, np.nan, added.sum(0)),
}


@pytest.mark.parametrize("wrong", WRONG_SUMS.values(), ids=WRONG_SUMS.keys())
def test_a_wrong_sum_over_the_chips_is_called_wrong(wrong):
    added = addends(4, 2048)
    assert is_sum(added.sum(0), 4)
    assert is_sum(added[[2, 0, 3, 1]].sum(0, dtype=np.float32), 4)
    assert not is_sum(wrong(added), 4)


def test_the_sum_over_a_whole_pod_is_exact():
    added = addends(4096, 64)
    rng = np.random.default_rng(0)
    assert is_sum(added[rng.permutation(4096)].cumsum(0, dtype=np.float32)[-1], 4096)
    np.testing.assert_array_equal(addends(16, 64, slice(5, 7)), addends(16, 64)[5:7])


def test_the_report_is_shown_as_committed():
    hosts = hosts_with(2, own_address="127.0.1.1", decoder="Pillow decodes, because of [x]", decoder_is_native=False)
    works = [dataclasses.replace(WORK, compute_seconds=0.018) if k == 1 else WORK for k in range(4)]
    findings = judge_hosts(hosts, [0.0, 0.1, -5.0, 0.0], [True] * 4) + work_of(hosts, works, need=9000.0)
    file = io.StringIO()
    show(Report(worst(findings), tuple(findings), (), ()), Console(file=file, width=110, color_system=None))
    assert_snapshot(Path(__file__).parent / "shown" / "report.txt", file.getvalue())


def test_a_containers_limit_counts_as_the_hosts_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(observe, "free_memory_bytes", lambda: 2**30)
    assert observe.observe_host(load_recipe("demo"), None, tmp_path).memory_free_bytes == 2**30


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "small.toml").write_text(RECIPE)
    return str(tmp_path / "small.toml")


@pytest.mark.slow
def test_two_processes_are_examined_together_and_nothing_is_left_behind(recipe, small_data, tmp_path):
    run = tmp_path / "runs" / "one"
    first, second = together("doctor", *[["--recipe", recipe, "--data", str(small_data), "--run", str(run)]] * 2)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert second.out == ""
    report = json.loads(first.out.splitlines()[-1])
    assert report["level"] in ("green", "yellow")  # on a busy machine one may compute slower
    assert [work["devices"] for work in report["works"]] == [1, 1]
    assert all(work["images"] < 96 and work["decode_images_per_second"] > 0 for work in report["works"])
    assert {f["point"] for f in report["findings"]} == {
        "versions", "recipe", "data", "names", "clocks", "run directory", "decoder", "devices", "disk",
        "share of the data", "memory", "decoding", "compute", "all-reduce",
    }  # fmt: skip
    assert [entry.name for entry in tmp_path.iterdir()] == ["small.toml"]


@pytest.mark.slow
def test_other_recipes_data_and_versions_are_all_named_before_a_device_starts(recipe, small_data, tmp_path):
    other_data = tmp_path / "other"
    shutil.copytree(small_data, other_data)
    manifest = json.loads((other_data / "manifest.json").read_text())
    (other_data / manifest["splits"]["train"]["shards"][0]["file"]).unlink()
    installed = tmp_path / "packages" / "optax-0.0.1.dist-info"  # as if another optax stood there
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: optax\nVersion: 0.0.1\n")
    first, second = together(
        "doctor",
        ["--recipe", recipe, "--data", str(small_data)],
        ["--recipe", recipe, "--data", str(other_data), "--set", "torus=1x4"],
        of_last={"PYTHONPATH": str(installed.parent)},
    )
    assert (first.code, second.code) == (1, 1), first.err + second.err
    report = json.loads(first.out.splitlines()[-1])
    found = {f["point"]: f for f in report["findings"] if f["level"] == "red"}
    assert "has optax 0.0.1, process 0 has" in found["versions"]["found"]
    assert "process 1 on" in found["recipe"]["found"]
    assert "is damaged" in found["data"]["found"]
    assert report["works"] == []


@pytest.mark.slow
def test_the_doctor_answers_alone_and_without_data(recipe, tmp_path):
    done = ended(podium("doctor", "--recipe", recipe, "--run", str(tmp_path / "run"), PODIUM_DECODER="pillow"))
    assert done.code == 0, done.err
    assert "one process: nobody to be found" in done.out
    assert "● data: not looked at\n  → give --data, a prepared directory" in done.out
    assert "Pillow decodes, because PODIUM_DECODER=pillow" in done.out
    assert "torus 1x2: 1 × 2 simulated chips, 8 images each" in done.out


@pytest.mark.slow
def test_a_torus_that_does_not_fit_is_red(recipe, tmp_path):
    arguments = ["--recipe", recipe, "--set", "torus=1x3", "--set", "batch_global=48", "--run", str(tmp_path / "run")]
    first, _ = together("doctor", arguments, arguments)
    assert first.code == 1
    assert verdict_of(first.out, "devices")["level"] == "red"


def verdict_of(out: str, point: str) -> dict[str, str]:
    return next(f for f in json.loads(out.splitlines()[-1])["findings"] if f["point"] == point)
