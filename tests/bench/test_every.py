"""Every benchmark in a short form: what is kept of a result, and what becomes of one that cannot run here."""

import json
from pathlib import Path

import pytest

from podium.bench import every
from podium.errors import UserError

RESULTS = Path(__file__).parents[2] / "results"


def kept(file):
    return json.loads((RESULTS / file).read_text())


def test_a_step_is_compared_with_both_of_pytorch():
    found = every.step_ratios(kept("step/2026-11-18-step.json"))
    assert {name: round(ratio["median"], 2) for name, ratio in found.items()} == {
        "resnet7 / PyTorch eager": 1.48,
        "resnet7 / torch.compile": 1.64,
        "ResNet-50 / PyTorch eager": 1.25,
        "ResNet-50 / torch.compile": 1.13,
    }


def test_input_is_compared_on_the_most_threads():
    found = every.input_ratios(kept("input/2026-11-18-imagenet-others.json"))
    assert {name: round(ratio["median"], 2) for name, ratio in found.items()} == {
        "JPEG bytes / tf.data": 3.01,
        "JPEG bytes / tf.data, same quality": 5.95,
        "JPEG bytes / DALI": 4.6,
    }


def test_seconds_become_a_ratio_of_which_more_is_better():
    """15.46 s of XLA to 4.76 s of the torus, at the largest of three sizes; the spread encloses the median."""
    found = every.allreduce_ratios(kept("allreduce/2026-11-16-4x4x8-100mbit.json"))
    xla = found["torus sum / XLA's"]
    assert round(xla["median"], 2) == 3.25
    assert xla["least"] < xla["median"] < xla["most"]


def test_a_pod_has_a_ratio_for_each_batch():
    found = every.pod_ratios(kept("plan/2026-11-18-pod-v3.json"))
    assert {name: round(1 / ratio["median"], 3) for name, ratio in found.items()} == {
        "v3:4x4, 8 a core / Flax": 0.742,
        "v3:4x4, 16 a core / Flax": 0.826,
        "v3:4x4, 64 a core / Flax": 0.923,
    }


def test_an_unknown_benchmark_writes_nothing(tmp_path):
    with pytest.raises(UserError, match="there is no benchmark 'steps'; choose from step, input, update"):
        every.run(("step", "steps"), tmp_path / "bench", print)
    assert not (tmp_path / "bench").exists()


@pytest.mark.slow
def test_what_runs_is_kept_and_what_cannot_run_is_named(tmp_path, monkeypatch):
    """Real commands, of the shortest kind; a second call adds to what was measured at the same commit."""
    quick = every.Part("bench allreduce --torus 1x2x1 --sizes 1024 --repeats 1", every.allreduce_ratios)
    wrong = every.Part("bench step --rounds 0", every.step_ratios)
    monkeypatch.setattr(every, "PARTS", {"sum": quick, "step": wrong})
    said: list[str] = []
    file = every.run(("step",), tmp_path, said.append)
    assert every.run(("sum",), tmp_path, said.append) == file
    result = json.loads(file.read_text())
    assert result["left_out"] == {"step": "rounds=0; a benchmark needs 1 or more, for example --rounds 5"}
    assert list(result["parts"]) == ["sum"]
    assert result["parts"]["sum"]["ratios"]["torus sum / ring"]["median"] > 0
    assert result["parts"]["sum"]["command"] == f"podium {quick.words} --json"
    assert result["machine"]["cores"] >= 1
    assert "step is left out: rounds=0; a benchmark needs 1 or more, for example --rounds 5" in said
