"""Checkpoints on disk: whole or named as damaged, few, and independent of how the state lies on the chips."""

import contextlib
import dataclasses
import errno
import itertools
import os
import re
import resource
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.support.small_runs import At, small_recipe

from podium.errors import UserError
from podium.step.state import State
from podium.train import checkpoint_files
from podium.train.checkpoint import Checkpoints, NotFinite, weights_hash
from podium.train.run import train_recipe

pytestmark = pytest.mark.slow

RECIPE = small_recipe()


def mesh(chips):
    return Mesh(np.array(jax.devices()[:chips]), "chip")


def laid_out(chips, seed=0):
    """Parameters on every chip, a slot in one part per chip."""
    rng = np.random.default_rng(seed)
    everywhere, in_parts = (NamedSharding(mesh(chips), PartitionSpec(*spec)) for spec in ((), ("chip",)))
    return State(
        step=jax.device_put(jnp.asarray(seed, jnp.int32), everywhere),
        params={"kernel": jax.device_put(rng.normal(size=(3, 4)).astype(np.float32), everywhere)},
        stats={"mean": jax.device_put(rng.normal(size=7).astype(np.float32), everywhere)},
        slots={"momentum": jax.device_put(rng.normal(size=48).astype(np.float32), in_parts)},
        weight_norms=jax.device_put(rng.uniform(1, 2, 1).astype(np.float32), everywhere),
    )


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    run = tmp_path_factory.mktemp("saved")
    with Checkpoints(run) as checkpoints:
        for step in (1, 2):
            checkpoints.save(laid_out(4, step), step, recipe=RECIPE, data_hash="data")
    return run


def test_going_back_removes_later_checkpoints_and_leftovers_and_nothing_of_a_users(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(laid_out(4, step), step, recipe=RECIPE, data_hash="data")
    folder = tmp_path / "checkpoints"
    (folder / ".DS_Store").touch()
    for name in ("2.keep", "mine", "3.orbax-checkpoint-tmp-77"):
        (folder / name).mkdir()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.first_step(1, say=lambda _: None) == 1
    assert sorted(found.name for found in folder.iterdir()) == [".DS_Store", "1", "2.keep", "mine"]


@pytest.mark.parametrize("chips", [1, 4, 16])
def test_a_state_comes_back_on_any_number_of_chips(saved, chips):
    with Checkpoints(saved) as checkpoints:
        like = laid_out(chips)
        got = checkpoints.load(2, like)
        assert checkpoints.about(2)["data_hash"] == "data"
        assert "jax" in checkpoints.about(2)["versions"]
    assert_same(got, laid_out(4, 2))
    assert all(a.sharding == b.sharding for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(like), strict=True))


@pytest.mark.parametrize("break_file", ["truncate", "flip", "remove"])
def test_damage_to_any_file_is_named_or_harmless(saved, tmp_path, break_file):
    files = [f.relative_to(saved) for f in sorted((saved / "checkpoints" / "2").rglob("*")) if f.is_file()]
    assert len(files) > 6
    named = 0
    for file in files:
        run = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(saved, run)
        content = (run / file).read_bytes()
        middle = len(content) // 2
        if break_file == "remove":
            (run / file).unlink()
        elif break_file == "truncate":
            (run / file).write_bytes(content[:middle])
        elif content:
            (run / file).write_bytes(content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :])
        said: list[str] = []
        with Checkpoints(run) as checkpoints:
            step = checkpoints.newest_good(said.append)
            assert step is not None
            if said:
                assert "checkpoints/2 is damaged" in said[0]
                named += 1
            assert_same(checkpoints.load(step, laid_out(4)), laid_out(4, step))
    assert named > 6


def test_three_are_kept_and_leftovers_are_cleared(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(laid_out(2, step), step, recipe=RECIPE, data_hash="data")
        checkpoints.wait()
        assert checkpoints.steps() == [3, 4, 5]
    (tmp_path / "checkpoints" / "6.orbax-checkpoint-tmp").mkdir()  # a kill while writing
    (tmp_path / "checkpoints" / "3" / "hashes.json").unlink()  # a kill while removing
    (tmp_path / "checkpoints" / "5" / "about" / "metadata").write_text("{}")
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.steps() == [4, 5]
        assert checkpoints.first_step(None, lambda _: None) == 4
    assert sorted(f.name for f in (tmp_path / "checkpoints").iterdir()) == ["4", "damaged-5"]


def test_orbax_has_written_its_own_file_when_its_hash_is_taken(tmp_path):
    """By itself it writes that file in another thread, and a busy machine finds it empty."""
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints._orbax._metadata_store.is_blocking_writer()


def test_a_disk_that_does_not_answer_costs_no_checkpoint(saved, tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(saved, run)

    def does_not_answer(file):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(file))

    with Checkpoints(run) as checkpoints:
        kept = checkpoints.steps()
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint_files, "sha256", does_not_answer)
            with pytest.raises(UserError, match="could not be read: Input/output error; make it readable"):
                checkpoints.first_step(None, lambda _: None)
        assert checkpoints.first_step(None, lambda _: None) == kept[-1]
        assert checkpoints.steps() == kept


def test_a_run_whose_checkpoints_are_all_damaged_does_not_start_over(saved, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    for file in run.glob("checkpoints/*/about/metadata"):
        file.write_text("{}")
    before = sorted(run.rglob("*"))
    told = pytest.raises(UserError, match=r"every checkpoint in .* is damaged; put one back from a copy")
    with Checkpoints(run) as checkpoints, told:
        checkpoints.first_step(None, lambda _: None)
    assert sorted(run.rglob("*")) == before


def test_a_state_that_is_not_finite_is_not_saved(tmp_path):
    state = laid_out(2)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(state, 1, recipe=RECIPE, data_hash="data")
        for bad in (np.nan, np.inf):
            state.stats["mean"] = state.stats["mean"].at[3].set(bad)
            with pytest.raises(NotFinite):
                checkpoints.save(state, 2, recipe=RECIPE, data_hash="data")
        assert checkpoints.steps() == [1]


def test_the_hash_of_weights_sees_every_bit():
    state = laid_out(2)
    assert weights_hash(state) == weights_hash(laid_out(16))
    state.params["kernel"] = jnp.nextafter(state.params["kernel"], jnp.inf)
    assert weights_hash(state) != weights_hash(laid_out(2))


def test_a_directory_that_becomes_unwritable_is_reported_at_once(small_data, tmp_path):
    checkpoints, file = tmp_path / "run" / "checkpoints", tmp_path / "file"

    def spoil():
        """A file in the directory's place. The writer of step 4 may make the directory again in between."""
        file.write_text("")
        for k in itertools.count():
            checkpoints.rename(tmp_path / f"away-{k}")
            with contextlib.suppress(IsADirectoryError):
                file.rename(checkpoints)
                return

    with pytest.raises(UserError, match=r"the checkpoint of step [48] could not be written to .*; there is none yet"):
        train_recipe(RECIPE, small_data, tmp_path / "run", listener=At(5, spoil))


def test_a_full_disk_is_reported_at_once_and_the_last_good_checkpoint_stays(small_data, tmp_path):
    """Files may not grow past a limit that the first checkpoints keep and a later one does not: the kernel refuses the
    write as it does on a full disk."""
    program = f"""
import os, resource, sys
os.environ["JAX_PLATFORMS"] = "cpu"
from podium.errors import UserError
from podium.train.run import train_recipe
from tests.support.small_runs import At, small_recipe
full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, {resource.RLIM_INFINITY}))
try:
    train_recipe(small_recipe(), {str(small_data)!r}, {str(tmp_path / "run")!r}, listener=At(9, full))
except UserError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "Event loop is closed" not in ended.stderr  # of the writers still in flight
    told = re.search(r"the checkpoint of step (8|12) could not be written .*File too large.*; step (\d)", ended.stdout)
    assert told, ended.stdout
    failed, good = map(int, told.groups())
    assert good == failed - 4
    with Checkpoints(tmp_path / "run") as checkpoints:
        assert checkpoints.newest_good() == good


def test_norms_and_slots_that_a_checkpoint_lacks_are_none_and_zero(tmp_path):
    state = laid_out(2)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(dataclasses.replace(state, weight_norms=None), 1, recipe=RECIPE, data_hash="data")
        checkpoints.wait()
        wanted = dataclasses.replace(state, slots={**state.slots, "variance": state.slots["momentum"]})
        loaded = checkpoints.load(1, wanted)
    assert loaded.weight_norms is None
    assert_same(loaded.slots["momentum"], state.slots["momentum"])
    assert not np.any(loaded.slots["variance"])
