"""The comparison of steps on a described pod, from made-up compilations; tests/plan compiles real ones."""

import re

import pytest
from rich.console import Console

from podium.bench import pod, pod_page
from podium.errors import UserError
from podium.plan.hlo import Collective, Program
from podium.plan.libtpu import Compiled
from podium.plan.machines import CHIPS, parse_pod
from podium.plan.operations import GROUPS, Operation, Operations
from podium.plan.peer import Peer
from podium.recipe.schema import Recipe

_SUM = Collective("all-reduce", 102_000_000, 32, overlapped_cycles=7)
_DEAREST = Operation("fusion.1", GROUPS[0], 826_210, 30_000_000, "fusion: a <b>", "bf16[16,112,112,64]")
_UNPRICED = Operation("s", GROUPS[4], 0, 57_802_754, "select-and-scatter", "bf16[16,112,112,64]", 2)


def _facts(cycles: int) -> Compiled:
    groups = Operations({group: cycles // len(GROUPS) for group in GROUPS}, (_DEAREST,), (_UNPRICED,))
    return Compiled(
        Program(cycles, 0, 24_000_000, (_SUM, _SUM)), 3.9e11, 6.5e9, 2**30, 60.0, 5.0, {"libtpu": "test"}, "key", groups
    )


@pytest.fixture
def compiled(monkeypatch):
    """27, 24 and 25 M cycles at 16 images a core, twice that at 32."""
    asked = []

    def compiled(program, on, stage):
        asked.append((type(program).__name__, getattr(program, "optimizer", None), program.batch_global, str(on)))
        millions = 27 if asked[-1][0] == "Recipe" else {"sgd": 24, "lars": 25}[program.optimizer]
        return _facts(millions * 1_000_000 * program.batch_global // (16 * on.cores))

    monkeypatch.setattr(pod, "compiled", compiled)
    monkeypatch.setattr(pod, "libtpu_version", lambda: "test")
    return asked


def test_every_program_is_compiled_at_every_batch(compiled):
    rows = pod.run("v3:4x4", (16, 32), stage=lambda text: None)["rows"]
    assert [(name, batch) for name, _, batch, _ in compiled] == [
        (name, batch) for batch in (512, 1024) for name in ("Recipe", "Peer", "Peer")
    ]
    # Of what has no price, 240 bytes are taken for a cycle.
    assert [row["cycles"] for row in rows[:3]] == [27e6, 24e6, 25e6]
    assert [row["cycles_per_image"] for row in rows[:3]] == [27.1e6 / 16, 24.1e6 / 16, 25.1e6 / 16]
    assert [row["to_lars"] for row in rows[:3]] == [27.1 / 25.1, 24.1 / 25.1, 1.0]
    assert rows[0]["collectives"] == {"all-reduce": {"count": 2, "bytes": 204_000_000}}
    assert rows[0]["overlapped_cycles"] == 14


def test_peers_differ_where_their_sources_do():
    on = parse_pod("v3:4x4")
    sgd, lars = pod.program(pod.SGD, on, 16), pod.program(pod.LARS, on, 16)
    assert isinstance(sgd, Peer)
    assert isinstance(lars, Peer)
    assert (sgd.norm_span, sgd.label_smoothing) == (0, 0.0)
    assert (lars.optimizer, lars.norm_span, lars.label_smoothing) == ("lars", 128, 0.1)
    ours = pod.program(pod.PODIUM, on, 16)
    assert isinstance(ours, Recipe)
    assert ours.model.norm_span == 128


def test_the_share_of_the_peak_is_that_of_one_core():
    """A v3 core does 61.5 TFLOP in a second of 940 M cycles."""
    assert pod.share_of_peak(CHIPS["v3"], 61.5e12, 2 * 940_000_000) == pytest.approx(0.5)
    assert pod.share_of_peak(CHIPS["v6e"], 1e12, 1) is None  # its clock is not published


def test_tables_and_page_tell_everything(compiled, tmp_path, capsys):
    result = pod.run("v3:4x4", (16, 32), stage=lambda text: None)
    pod_page.show(result, Console(width=200))
    shown = capsys.readouterr().out
    for text in ("27.00", "27.10", "108.0%", "2 all-reduce 204.0 MB", *GROUPS, "select-and-scatter", "57.8", "826"):
        assert text in shown
    pod_page.write(result, tmp_path / "pod.html", command="podium bench pod")
    page = (tmp_path / "pod.html").read_text()
    assert "<svg" in page
    assert "fusion: a &lt;b&gt;" in page
    assert not re.search(r'(src|href)="http', page)


def test_what_cannot_be_compiled_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(pod, "libtpu_version", lambda: "test")
    with pytest.raises(UserError, match="compiles for TPUs, and a100:4x8 has GPUs"):
        pod.run("a100:4x8", (16,), stage=lambda text: None)
    monkeypatch.setattr(pod, "libtpu_version", lambda: None)
    with pytest.raises(UserError, match="libtpu, which is not installed"):
        pod.run("v3:4x4", (16,), stage=lambda text: None)
