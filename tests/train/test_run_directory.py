"""What run.json keeps, and which keys of a recipe may change while a run lasts."""

import contextlib
import dataclasses
import json

import pytest
from tests.support.small_runs import small_recipe

from podium.data.dataset.shards import ImageSet
from podium.errors import UserError
from podium.host.sealed import unseal
from podium.recipe.reading import to_dict
from podium.train import run_directory
from podium.train.run_directory import Change, claim, read, record_change, went_back_to


@pytest.fixture
def claimed(small_data, tmp_path):
    recipe, images = small_recipe().for_data(3, 96, 22), ImageSet.open(small_data, "train")
    claim(tmp_path / "run", recipe, images)
    return tmp_path / "run", recipe, images


def keys(table, where=""):
    for key, value in table.items():
        yield f"{where}{key}"
        yield from keys(value, f"{where}{key}.") if isinstance(value, dict) else ()


def test_what_belongs_to_the_machine_and_what_is_fixed_are_keys_of_a_recipe():
    known = set(keys(to_dict(small_recipe())))
    assert {*run_directory._MACHINE, *run_directory._FIXED} <= known
    assert not any(key.startswith(run_directory._FIXED) for key in run_directory._MACHINE)


def test_a_run_is_read_as_it_was_claimed(claimed, small_data):
    run, recipe, images = claimed
    info = read(run)
    assert (info.recipe, info.classes, info.changes) == (recipe, ("red", "green", "blue"), ())
    assert (info.data, info.data_hash) == (str(small_data.absolute()), images.content_hash)


def test_changes_are_kept_in_order_and_the_recipe_is_the_last_one(claimed):
    run, recipe, _ = claimed
    assert went_back_to(run) is None
    for after, from_step in ((8, None), (4, 4), (12, None)):
        changed = dataclasses.replace(recipe, seed=after)
        record_change(run, changed, Change(after, (f"seed {after}",), from_step))
    assert read(run).changes == (
        {"after_step": 8, "changed": ["seed 8"]},
        {"after_step": 4, "changed": ["seed 4"], "from_step": 4},
        {"after_step": 12, "changed": ["seed 12"]},
    )
    assert read(run).recipe.seed == 12
    assert went_back_to(run) == 4


def test_the_last_return_counts(claimed):
    run, recipe, _ = claimed
    for step in (8, 4):
        record_change(run, recipe, Change(step, (), step))
    assert went_back_to(run) == 4


@pytest.mark.parametrize("key", ["torus", "max_lost_steps", "log_every_steps", "evaluate_every_epochs"])
def test_what_belongs_to_the_machine_may_change_at_any_restart(claimed, key):
    run, recipe, images = claimed
    other = dataclasses.replace(recipe, **{key: "2x2" if key == "torus" else 3})
    assert claim(run, other, images) == [f"{key} {getattr(recipe, key)} → {getattr(other, key)}"]


def test_a_file_that_is_no_run_is_named(tmp_path):
    with pytest.raises(UserError, match=r"holds no run \(no readable run\.json\); give the --run directory"):
        read(tmp_path)
    for content in (b"", b"{}", b"[]", b"3", b"\xff", b"[" * 100_000):
        (tmp_path / "run.json").write_bytes(content)
        with pytest.raises(UserError, match=r"run\.json is damaged \(.*\); put back a copy, or choose another --run"):
            read(tmp_path)


def test_a_run_of_0_1_0_has_no_hash_and_is_read(claimed):
    run, recipe, _ = claimed
    about = unseal((run / "run.json").read_bytes())
    (run / "run.json").write_text(json.dumps(about))
    assert read(run).recipe == recipe


def test_nothing_is_written_before_the_lock_is_held(claimed, small_data):
    """Of two that start at once with different recipes, the one that holds the lock has its recipe in run.json."""
    run, recipe, images = claimed
    fresh = run.with_name("fresh")
    with run_directory.claimed(fresh, recipe, images, from_step=None, say=print):
        other = dataclasses.replace(recipe, seed=5)
        second = run_directory.claimed(fresh, other, images, from_step=None, say=print)
        with pytest.raises(UserError, match="is being trained by process"), second:
            pass
        assert read(fresh).recipe == recipe


def test_a_start_that_loses_the_race_for_a_new_directory_writes_no_recipe(claimed, monkeypatch):
    """The second looks while the directory is still empty, and gets the lock only after the first has let go."""
    run, recipe, images = claimed
    fresh, other, first = run.with_name("fresh"), dataclasses.replace(recipe, seed=5), contextlib.ExitStack()
    hold = run_directory.hold

    def held_later(*arguments):
        monkeypatch.setattr(run_directory, "hold", hold)
        with first:
            first.enter_context(run_directory.claimed(fresh, recipe, images, from_step=None, say=print))
        return hold(*arguments)

    monkeypatch.setattr(run_directory, "hold", held_later)
    late = run_directory.claimed(fresh, other, images, from_step=None, say=print)
    with pytest.raises(UserError, match=r"holds a different run \(seed 0 → 5\)"), late:
        pass
    assert read(fresh).recipe == recipe


def test_a_directory_with_other_files_is_left_as_it_is(claimed):
    run, recipe, images = claimed
    (run / "run.json").rename(run / "notes.txt")
    with (
        pytest.raises(UserError, match="is not empty and holds no run"),
        run_directory.claimed(run, recipe, images, from_step=None, say=print),
    ):
        pass
    assert [file.name for file in run.iterdir()] == ["notes.txt"]
