"""Facts compiled for GPUs: where they come from, what they depend on, and how a refusal is told. The compiler itself is
asked in tests/step/test_on_gpus.py and, as a person would, at the end of this file."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.support.described import needs_cuda_compiler

from podium.errors import UserError
from podium.plan import cuda, worker
from podium.plan.cuda_target import CARDS, target_config
from podium.plan.machines import CHIPS, parse_pod
from podium.plan.plan import make_plan
from podium.recipe.reading import load_recipe

RECIPE = load_recipe("demo", ["torus=auto", "batch_global=128", "model.norm_span=8", "model.classes=10"])
LOAD = {"fusion_us": 100.0, "convolution_us": 50.0, "kernels": 60}
SUM = {"kind": "all-reduce", "bytes": 300_000, "gpus": 16, "hosts": 2, "synchronous": False, "under": LOAD, "count": 1}
PROGRAM = {
    "whole": LOAD, "update": {"fusion_us": 5.0, "convolution_us": 0.0, "kernels": 7}, "convolutions": 20,
    "convolution_flops": 1e9, "channels_last": True, "launches": {"graphs": 2, "in_graphs": 30, "alone": 30},
    "collectives": [SUM],
}  # fmt: skip
RESULT = {"program": PROGRAM, "memory_bytes": 10**9, "donated_bytes": 10**6, "compile_seconds": 9.0}


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What the worker was asked, which answers with RESULT; a cache of its own."""
    requests = []

    def ask(module, request, environment, *, stage):
        assert environment["JAX_PLATFORMS"] == "cpu"
        requests.append((module, request))
        return {"result": RESULT}

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(worker, "ask", ask)
    monkeypatch.setattr(cuda, "plugin_version", lambda: "jax-cuda12-pjrt test")
    return requests


def quiet(text):
    pass


def test_what_was_compiled_is_kept_until_the_recipe_or_the_cluster_changes(asked):
    pod = parse_pod("h100:2x8")
    first, second = (cuda.compiled(RECIPE, pod, quiet) for _ in range(2))
    assert first is not None
    assert first.earlier is False
    assert second == replace(first, earlier=True)
    assert len(asked) == 1
    cuda.compiled(RECIPE, parse_pod("h200:2x8"), quiet)
    cuda.compiled(load_recipe("demo", ["torus=auto", "model.norm_span=8", "batch_global=256"]), pod, quiet)
    assert len(asked) == 3
    assert {module for module, _ in asked} == {"podium.plan.cuda_worker"}


def test_a_plan_says_what_is_compiled_and_what_is_modelled(asked):
    plan = make_plan(RECIPE, parse_pod("h100:2x8")).to_json()
    assert plan["memory_bytes_per_core"] == 10**9
    assert plan["origins"]["memory_bytes_per_core"] == plan["origins"]["allreduce"] == "compiled"
    assert plan["origins"]["step_seconds"] == "modelled"
    assert plan["origins"]["memory_limit_bytes"] == "assumed"
    assert {part["name"] for part in plan["parts"]} >= {"compute", "launches", "gradient summation"}
    assert plan["compiled"]["program"]["whole"]["kernels"] == 60
    assert any("cuDNN's workspaces" in note for note in plan["notes"])


def test_without_the_compiler_or_a_description_the_plan_is_counted_and_says_so(asked, monkeypatch):
    (note,) = make_plan(RECIPE, parse_pod("v100:2x8")).notes
    assert note == "v100 is counted, not compiled: nobody has described it to XLA's GPU compiler"
    monkeypatch.setattr(cuda, "plugin_version", lambda: None)
    plan = make_plan(RECIPE, parse_pod("h100:2x8"))
    assert plan.compiled is None
    assert "make install EXTRAS=plan-gpu brings it" in plan.notes[0]
    assert not asked


def test_a_refusal_is_one_line(asked, monkeypatch):
    monkeypatch.setattr(worker, "ask", lambda *_, **__: {"failed": "UNIMPLEMENTED: no\nmore"})
    with pytest.raises(UserError, match=r"^the GPU compiler refused demo on h100:1x8: UNIMPLEMENTED: no$"):
        cuda.compiled(RECIPE, parse_pod("h100:1x8"), quiet)


@pytest.mark.parametrize("card", CARDS)
def test_a_card_is_described_as_it_is_planned(card):
    chip, described = CHIPS[card], CARDS[card]
    assert described["memory_bandwidth"] == pytest.approx(chip.memory_bandwidth, rel=0.01)
    assert described["memory_bytes"] == pytest.approx(chip.memory_bytes_per_core, rel=0.02)
    # Four tensor cores a multiprocessor; a multiply-add is two operations.
    flops = described["cores"] * 4 * described["matrix_ops"]["bf16"] * 2 * described["matrix_clock_ghz"] * 1e9
    assert flops == pytest.approx(chip.bf16_flops, rel=0.02)
    assert described["name"] in target_config(card)


@pytest.mark.slow
@pytest.mark.optimized
@needs_cuda_compiler
def test_a_plan_is_compiled_as_a_person_asks_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = [sys.executable, "-m", "podium", "plan", "--recipe", "demo", "--topology", "h100:2x8", "--batch", "128"]
    done = subprocess.run(
        [*command, "--set", "model.norm_span=64", "--set", "torus=auto", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    program = plan["compiled"]["program"]
    assert 0 < program["update"]["kernels"] < program["whole"]["kernels"] < 400
    assert plan["fits"] is True
    for words in ("kernels", "cuDNN convolutions, NHWC", "inside a host", "over 2 hosts", "compiled in", "jax-cuda12"):
        assert words in done.stderr, words
    assert "Traceback" not in done.stderr
    assert "cuda drivers" not in done.stderr  # what the plugin says of a machine without a GPU
