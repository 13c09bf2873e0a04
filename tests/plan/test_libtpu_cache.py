"""The cache key, the worker's answers and the facts' round trip; the compiler itself is in test_libtpu.py."""

import json
from dataclasses import asdict, replace

import pytest

from podium.host.paths import cache_directory
from podium.plan import libtpu as compiling
from podium.plan import worker
from podium.plan.hlo import Collective, Program
from podium.plan.libtpu_worker import out_of_memory
from podium.plan.machines import parse_pod
from podium.plan.operations import Operation, Operations
from podium.plan.peer import Peer
from podium.recipe.reading import load_recipe

_RECIPE = load_recipe("resnet50-32k")
_POD = parse_pod("v3:32x32")


def test_what_does_not_change_the_program_does_not_change_the_key():
    key = compiling.key_of(_RECIPE, _POD)
    same = replace(_RECIPE, name="other", seed=7, evaluate_every_epochs=1.0, steps_per_dispatch=2)
    assert compiling.key_of(same, _POD) == key


def test_what_changes_the_program_changes_the_key(monkeypatch):
    others = [
        compiling.key_of(replace(_RECIPE, batch_global=65536), _POD),
        compiling.key_of(replace(_RECIPE, reduce="ring"), _POD),
        compiling.key_of(replace(_RECIPE, model=replace(_RECIPE.model, stem="space_to_depth")), _POD),
        compiling.key_of(_RECIPE, parse_pod("v3:16x32")),
        compiling.key_of(_RECIPE, _POD),
    ]
    monkeypatch.setattr(compiling, "libtpu_version", lambda: "another")
    others.append(compiling.key_of(_RECIPE, _POD))
    monkeypatch.setattr(worker, "hash_of", lambda patterns: "an edited step")
    others.append(compiling.key_of(_RECIPE, _POD))
    others += [compiling.key_of(peer, _POD) for peer in (Peer(32768, 128), Peer(32768, 128, "sgd"), Peer(32768))]
    assert len(set(others)) == len(others)


def test_facts_survive_json():
    norm = Collective("all-reduce", 4128, 8, "SinglePhaseRingSumEmitter")
    big = Collective("all-reduce", 10**8, 2048, "E", "StrategyND", 2, 2, ((64, 32),) * 2, ((0, 1), (1, 0)), 5)
    facts = compiling.Compiled(Program(9, 1, 3, (norm, norm, big)), 1.0, 2.0, 3, 4.0, 5.0, {"libtpu": "x"}, "key")
    table = json.loads(json.dumps(compiling.to_json(facts)))
    assert len(table["collectives"]) == 2
    assert compiling.from_json(table) == facts


def test_groups_of_operations_are_cached_and_not_shipped():
    copy = Operation("copy.1", "copies", 5, 10, "copy", "f32[8]")
    groups = Operations({"copies": 5}, (copy,), (replace(copy, cycles=0, count=2),))
    facts = compiling.Compiled(Program(9, 1, 3, ()), 1.0, 2.0, 3, 4.0, 5.0, {"libtpu": "x"}, "key", groups)
    shipped = compiling.to_json(facts)
    assert "operations" not in shipped
    cached = json.loads(json.dumps({**shipped, "operations": asdict(groups)}))
    assert compiling.from_json(cached) == facts


def test_the_compilers_complaint_about_memory_is_understood():
    message = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.20G of 15.48G hbm. Exceeded by 1.7G."
    assert out_of_memory(message) == {"needed": round(17.2 * 2**30), "limit": round(15.48 * 2**30)}
    assert out_of_memory("INVALID_ARGUMENT: no such topology") is None


def test_an_answer_in_the_cache_needs_no_compiler(monkeypatch):
    monkeypatch.setattr(compiling, "libtpu_version", lambda: "from the cache")
    file = cache_directory() / "plan" / f"{compiling.key_of(_RECIPE, _POD)}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"out_of_memory": {"needed": 20 * 2**30, "limit": 16 * 2**30}}))
    with pytest.raises(compiling.DoesNotFit) as error:
        compiling.compiled(_RECIPE, _POD, print)
    assert error.value.needed_bytes == 20 * 2**30


def test_a_fresh_compilation_passes_by_the_cache_and_replaces_what_is_there(monkeypatch):
    monkeypatch.setattr(compiling, "libtpu_version", lambda: "fresh")
    file = cache_directory() / "plan" / f"{compiling.key_of(_RECIPE, _POD)}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"out_of_memory": {"needed": 20 * 2**30, "limit": 16 * 2**30}}))
    result = {
        "cycles": 9, "update_cycles": 1, "unpriced_bytes": 3, "collectives": [], "flops": 1.0, "bytes_accessed": 2.0,
        "memory_bytes": 3, "compile_seconds": 4.0, "trace_seconds": 5.0,
    }  # fmt: skip
    monkeypatch.setattr(compiling, "_run_worker", lambda *_, **__: {"result": result})
    facts = compiling.compiled(_RECIPE, _POD, print, fresh=True)
    assert facts is not None
    assert (facts.memory_bytes, facts.earlier) == (3, False)
    assert json.loads(file.read_text()) == {"result": result}
    assert compiling.compiled(_RECIPE, _POD, print) == replace(facts, earlier=True)


def test_gpus_and_machines_without_libtpu_have_no_compiled_facts(monkeypatch):
    assert compiling.compiled(_RECIPE, parse_pod("a100:96x8"), print) is None
    monkeypatch.setattr(compiling, "libtpu_version", lambda: None)
    assert compiling.compiled(_RECIPE, _POD, print) is None
