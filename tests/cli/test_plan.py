"""`podium plan` as a person runs it, without the compiler."""

import json

import pytest
from rich.console import Console

from podium.cli import plan as command
from podium.cli.arguments.plan_options import PlanOptions
from podium.plan import decode_rate

pytestmark = [pytest.mark.slow, pytest.mark.optimized]


_SMALL = ("--recipe", "cifar10-sgd", "--counted", "--json")


def test_the_last_line_is_the_plan(podium):
    done = podium("plan", *_SMALL, "--topology", "v3:2x2")
    assert done.code == 0, done.err
    plan = json.loads(done.out.splitlines()[-1])
    assert plan["images_per_second"] == pytest.approx(plan["batch_global"] / plan["step_seconds"])
    assert plan["fits"] is True
    assert plan["memory_bytes_per_core"] < plan["memory_limit_bytes"]
    assert plan["allreduce"]["bytes"] > 0
    assert plan["input"]["cpu_cores_per_host"] > 0
    assert plan["schedules"]["two-colour"]["simulated_seconds"] > 0
    assert "modelled" in done.err


def test_a_sweep_writes_a_page(podium, tmp_path):
    done = podium("plan", *_SMALL, "--topology", "v3:2x2,v3:4x4,v3:8x8", "--out", str(tmp_path), "--batch", "8192")
    assert done.code == 0, done.err
    rows = json.loads(done.out.splitlines()[-1])["rows"]
    assert [row["chips"] for row in rows] == [4, 16, 64]
    assert rows[0]["efficiency"] == 1
    assert rows[-1]["communication_share"] > rows[0]["communication_share"]
    assert (tmp_path / "sweep.html").stat().st_size > 3000


def test_a_sweep_that_cannot_be_written_is_not_made(podium, tmp_path):
    (tmp_path / "taken").write_text("a file")
    done = podium("plan", *_SMALL, "--topology", "v3:2x2,v3:4x4", "--out", str(tmp_path / "taken"), "--batch", "8192")
    assert done.code == 2
    assert done.err == f"podium: {tmp_path}/taken could not be written: File exists; give another --out\n"
    assert done.err.count("\n") == 1


def test_the_smallest_pod_that_is_fast_enough(podium):
    done = podium("plan", *_SMALL, "--topology", "v3", "--fit", "pod", "--minutes", "0.5")
    assert done.code == 0, done.err
    found = json.loads(done.out.splitlines()[-1])
    assert found["train_minutes"] <= 0.5


def test_the_largest_batch_that_fits(podium):
    done = podium("plan", *_SMALL, "--topology", "v3:2x2", "--fit", "batch")
    assert done.code == 0, done.err
    found = json.loads(done.out.splitlines()[-1])
    assert found["fits"]
    assert found["memory_bytes_per_core"] > 0.4 * found["memory_limit_bytes"]


@pytest.mark.parametrize(
    "options",
    [
        PlanOptions("cifar10-sgd", "v3:2x2", counted=True),
        PlanOptions("cifar10-sgd", "v3:2x2,v3:4x4", counted=True),
        PlanOptions("cifar10-sgd", "v3:2x2", fit="batch", counted=True),
        PlanOptions("cifar10-sgd", "v3", fit="pod", minutes=80.0, counted=True),
    ],
)
def test_every_way_of_planning_waits_for_input(options, monkeypatch, capsys):
    measured = []

    def measure(data):
        measured.append(data)
        return 1.0  # image a second, per core

    monkeypatch.setattr(decode_rate, "measure", measure)
    result = command.run(options, (), Console(width=200))
    plans = result.get("rows", [result])
    assert [plan["limit"] for plan in plans] == ["input"] * len(plans)
    assert len(measured) == 1
    assert "limited by input" in capsys.readouterr().out
    if options.fit == "pod":  # 50,000 images, 11 epochs, 96 cores a host: 95 minutes on one, 48 on two
        assert plans[0]["hosts"] == 2


_TWO_PODS = ("--topology", "v3:2x2,v3:4x4")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--fresh",), "--fresh would do nothing for a single plan"),
        (("--out", "page"), "--out would do nothing for a single plan"),
        (("--minutes", "5"), "--minutes would do nothing for a single plan"),
        (("--fresh", *_TWO_PODS), "--fresh would do nothing for a sweep"),
        (("--out", "page", "--fit", "pod"), "--out would do nothing for --fit pod"),
        (("--batch", "512", "--fit", "batch"), "--batch would do nothing for --fit batch"),
        (("--fit", "pod", *_TWO_PODS), "--fit pod starts from one --topology and one --batch"),
        (("--fit", "batch", *_TWO_PODS), "--fit batch starts from one --topology"),
        (("--fit", "pod", "--batch", "512,1024"), "--fit pod starts from one --topology and one --batch"),
        (
            ("--check", "--counted", *_TWO_PODS, "--set", "epochs=9"),
            "--topology and --counted and --set would do nothing for --check, which uses --check, --fresh; leave",
        ),
    ],
)
def test_an_option_without_effect_is_refused(podium, arguments, says):
    done = podium("plan", *arguments, *(() if "--check" in arguments else ("--counted", "--recipe", "cifar10-sgd")))
    assert done.code == 2
    assert done.err.startswith(f"podium: {says}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--topology", "v3:3x3"), "the nearest is v3:4x4"),
        (("--topology", "v3:32x32", "--batch", "1000", "--set", "model.norm_span=8"), "is not divisible by 2048 chips"),
        (("--topology", "v3:32x32", "--batch", "many"), "write --batch 16384,32768"),
        (
            ("--recipe", "cifar10-sgd", "--topology", "v2", "--fit", "pod", "--minutes", "0.0001"),
            "the fastest, v2:",
        ),
        (
            ("--topology", "v3", "--fit", "pod", "--batch", "100", "--set", "model.norm_span=50"),
            "no v3 pod divides batch_global=100 with model.norm_span=50; use --batch 200",
        ),
    ],
)
def test_a_mistake_is_one_line(podium, arguments, says):
    done = podium("plan", "--counted", *arguments)
    assert done.code == 2
    assert says in done.err.splitlines()[-1]
    assert len([line for line in done.err.splitlines() if line.startswith("podium:")]) == 1
