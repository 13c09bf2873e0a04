"""The time of a compiled step on a GPU cluster, against sums by hand; and the check against published runs."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from podium.plan import gpu_published, gpu_show
from podium.plan.cuda import GpuCompiled, from_json, to_json
from podium.plan.gpu_estimate import CONSTANTS, GpuConstants, collective_us, gradient_sum, hidden_share, parts
from podium.plan.gpu_hlo import GpuCollective, GpuProgram, Launches, Load
from podium.plan.machines import parse_pod

CLUSTER = parse_pod("h100:4x8")
PLAIN = GpuConstants(
    fusion_factor=1.0, convolution_share=0.5, launch_us=2.0, eager_launch_us=10.0, latency_us=10.0, bandwidth_share=0.5
)
SUM = GpuCollective("all-reduce", 45_000_000, gpus=32, hosts=4, synchronous=False, under=Load(100.0, 50.0, 10))
NORM = GpuCollective("all-gather", 4_000, gpus=8, hosts=1, synchronous=True)
PROGRAM = GpuProgram(
    Load(1000.0, 500.0, 200), Load(100.0, 0.0, 20), 50, 1e12, True, Launches(9, 120, 80), (SUM, NORM, NORM)
)
FACTS = GpuCompiled(PROGRAM, 10**9, 10**8, 12.0, {"jax": "1", "plugin": "p 1", "flax": "1"})


def test_a_sum_goes_inside_the_hosts_and_between_them():
    inside = 2 * 7 / 8 * 45e6 / 450e9 / 0.5
    between = 2 * 3 / 4 * 45e6 / 400e9 / 0.5
    assert collective_us(SUM, CLUSTER, PLAIN) == pytest.approx(10 * (1 + 2) + 1e6 * (inside + between))


def test_a_gather_inside_a_host_is_half_a_sum_and_has_one_latency():
    assert collective_us(NORM, CLUSTER, PLAIN) == pytest.approx(10 + 1e6 * 7 / 8 * 4e3 / 450e9 / 0.5)


def test_a_step_is_work_launches_and_what_nothing_hides():
    found = {part.name: part.seconds * 1e6 for part in parts(CLUSTER, FACTS, PLAIN)}
    assert found["compute"] == pytest.approx(900 + 500 / 0.5)
    assert found["launches"] == pytest.approx(200 * 2)
    assert found["weight update"] == pytest.approx(100)
    under = 100 + 50 / 0.5 + 10 * 2
    assert found["gradient summation"] == pytest.approx(collective_us(SUM, CLUSTER, PLAIN) - under)
    assert found["batch-norm exchange"] == pytest.approx(2 * collective_us(NORM, CLUSTER, PLAIN))
    eager = {part.name: part.seconds * 1e6 for part in parts(CLUSTER, FACTS, PLAIN, eager=True)}
    assert eager["launches"] == pytest.approx(200 * 10)


def test_a_sum_is_hidden_as_far_as_the_work_under_it_lasts():
    whole = collective_us(SUM, CLUSTER, PLAIN)
    half = replace(SUM, under=Load(whole / 2, 0.0, 0))
    more = replace(SUM, under=Load(0.0, whole, 50))
    assert hidden_share([half], CLUSTER, PLAIN) == pytest.approx(0.5)
    assert hidden_share([half, more, replace(half, bytes=0)], CLUSTER, PLAIN) == pytest.approx(0.75)
    under = (100 * CONSTANTS.fusion_factor + 50 / CONSTANTS.convolution_share + 10 * CONSTANTS.launch_us) / (
        collective_us(SUM, CLUSTER, CONSTANTS)
    )
    words = gradient_sum(CLUSTER, FACTS, 0.001).words
    assert words == f"NCCL: 1 asynchronous sum of 45 MB together, {under:.0%} of the bytes under other work"


def test_facts_survive_json():
    assert from_json(to_json(FACTS)) == FACTS


def test_published_runs_are_planned_within_the_promised_errors():
    rows = gpu_published.check()
    found = gpu_published.summary(rows)
    assert len(rows) >= 15
    for part in ("all", "tested"):
        assert found[part]["median_error"] <= 0.20
        assert found[part]["worst_error"] <= 0.40


def test_on_an_a100_most_of_the_gradient_sum_lies_under_other_work():
    hidden = {row["name"]: row["sums_hidden"] for row in gpu_published.check()}
    assert min(hidden[name] for name in ("a100-8", "a100-64", "a100-768-eager", "h100-8", "h100-64")) >= 0.5
    kernels = {row["name"]: row["kernels"] for row in gpu_published.check()}
    assert kernels["h100-8"] <= 1_100


def test_the_fitted_constant_is_that_of_the_points_for_fitting():
    facts = gpu_published.kept()
    half = [p for p in gpu_published.POINTS if gpu_published.is_fitted(p) and gpu_published.program_of(p) in facts]
    assert gpu_published.fit(facts, half).fusion_factor == pytest.approx(CONSTANTS.fusion_factor, rel=0.02)


def test_the_check_says_what_each_figure_is():
    shown = gpu_published.to_json(gpu_published.check())
    assert {table["origin"] for table in shown["constants"].values()} == {"fitted", "assumed"}
    assert shown["constants"]["fusion_factor"] == {"value": CONSTANTS.fusion_factor, "origin": "fitted"}
    assert (shown["origins"]["predicted"], shown["origins"]["kernels"]) == ("modelled", "compiled")
    console = Console(width=200, record=True, file=io.StringIO())
    gpu_show.show_check(shown["points"], console)
    text = console.export_text()
    assert all(point["topology"] in text for point in shown["points"])
    assert "fitted: fusion factor" in text
    assert "assumed: convolution share 0.5" in text
