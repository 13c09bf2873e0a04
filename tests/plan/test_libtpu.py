"""The real TPU compiler, on a small network and a small pod: what is compiled is `build_step`'s program."""

import pytest

from podium.errors import UserError
from podium.plan import libtpu as compiling
from podium.plan.estimate import Origin
from podium.plan.machines import parse_pod
from podium.plan.operations import COPIES
from podium.plan.peer import Peer
from podium.plan.plan import make_plan
from podium.recipe.reading import load_recipe

pytestmark = [pytest.mark.slow, pytest.mark.optimized]

_RECIPE = load_recipe("demo", ["batch_global=256", "model.norm_span=64", "torus=auto", "model.classes=10"])
_POD = parse_pod("v3:2x2")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        stages: list[str] = []
        first = make_plan(_RECIPE, _POD, stages.append)
        again = make_plan(_RECIPE, _POD, stages.append)
        yield first, again, stages


def test_a_step_compiles_and_is_priced(plan):
    first, _, stages = plan
    assert first.compiled
    assert first.compiled.program.cycles > 10_000
    assert first.compiled.flops > 1e6
    assert 2**20 < first.memory.bytes < first.memory.limit_bytes
    assert first.memory.origin == Origin.COMPILED
    assert any(stage.startswith("compiling") for stage in stages)


def test_gradients_are_summed_over_all_cores_and_norms_over_tiles_of_two(plan):
    collectives = plan[0].compiled.program.collectives
    assert {c.cores for c in collectives} == {2, 8}
    gradients = 4 * sum(p for p in [plan[0].gradients.bytes // 4])
    assert gradients > 4 * 70_000  # resnet8's parameters at least


def test_the_second_time_comes_from_the_cache(plan):
    first, again, stages = plan
    assert not first.compiled.earlier
    assert again.compiled.earlier
    assert again.estimate == first.estimate
    assert sum(stage.startswith("compiling") for stage in stages) == 1


def test_a_peers_step_compiles_in_the_same_way(tmp_path, monkeypatch):
    """One block of the peer's network: every priced cycle is in a group, and gradients are summed over all cores."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    peer = Peer(64, 16, blocks=(1,), image_size=32, gradient_sum="bf16")
    facts = compiling.compiled(peer, _POD, lambda stage: None)
    assert facts is not None
    assert facts.operations is not None
    assert sum(facts.operations.groups.values()) == facts.program.cycles > 10_000
    assert all(cycles > 0 for group, cycles in facts.operations.groups.items() if group != COPIES)
    largest = max(facts.program.collectives, key=lambda c: c.bytes)
    assert (largest.cores, {c.cores for c in facts.program.collectives}) == (8, {2, 8})
    weights = 7 * 7 * 3 * 64 + 64 * (64 + 9 * 64 + 2 * 256) + 256 * 1000
    assert largest.bytes == pytest.approx(2 * weights, rel=0.02)  # in bfloat16, with norms and biases


def test_a_batch_that_does_not_fit_is_planned_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    huge = load_recipe("demo", ["batch_global=1048576", "model.norm_span=64", "torus=auto", "model.classes=10"])
    plan = make_plan(huge, _POD)
    assert not plan.fits
    assert plan.memory.bytes > plan.memory.limit_bytes
    assert "ran out of memory" in plan.notes[0]


def test_a_refused_program_is_one_line(monkeypatch):
    monkeypatch.setattr(compiling, "_run_worker", lambda *_, **__: {"failed": "INVALID: no\nmore"})
    with pytest.raises(UserError, match=r"refused demo on v3:2x2: INVALID: no$"):
        compiling.compiled(_RECIPE, _POD, print, fresh=True)
