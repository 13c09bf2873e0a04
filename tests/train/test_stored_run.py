"""A run in an object store, emulated by fsspec's store in memory: it has no directories, no renames and no locks."""

import itertools

import fsspec
import pytest
from tests.support.small_runs import Heard, small_recipe

from podium.errors import Stopped, UserError
from podium.train import run_directory
from podium.train.checkpoint_files import complete_steps, list_hashes
from podium.train.run import Limits, train_recipe
from podium.train.stored_run import _Store, fetched, local_copy, url_of
from podium.train.trained_model import open_run

_numbers = itertools.count()


@pytest.fixture
def url():
    return f"memory://bucket/run-{next(_numbers)}"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Another machine, with a cache directory of its own, each time it is called."""
    numbers = itertools.count()
    return lambda: monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"machine-{next(numbers)}"))


def checkpoint(directory, step, content=b"weights", whole=True):
    folder = directory / "checkpoints" / str(step)
    (folder / "state").mkdir(parents=True)
    (folder / "state" / "array").write_bytes(content)
    (folder / "_CHECKPOINT_METADATA").write_text("{}")
    if whole:
        list_hashes(folder)


def tree(directory):
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("s3://b/runs/one", "s3://b/runs/one"),
        ("s3:/b/runs/one/", "s3://b/runs/one"),
        ("runs/one", None),
        ("/a:/b", None),
    ],
)
def test_an_address_is_known_also_where_a_path_has_lost_a_slash(run, expected):
    assert url_of(run) == expected


def test_another_machine_gets_what_is_whole_and_nothing_that_is_gone(url, machine):
    machine()
    here = fetched(url)
    (here / "run.json").write_text("one")
    checkpoint(here, 2)
    checkpoint(here, 4)
    checkpoint(here, 6, whole=False)
    store = _Store(url)
    store.copy()
    (here / "run.json").write_text("two")
    for file in sorted((here / "checkpoints/2").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    (here / "checkpoints/2").rmdir()
    store.copy()
    machine()
    there = fetched(url)
    assert there != here
    assert complete_steps(there / "checkpoints") == [4]
    assert (there / "run.json").read_text() == "two"
    assert {name for name in tree(there) if "checkpoints/6" in name or "checkpoints/2" in name} == set()


@pytest.mark.parametrize("refused", range(4))
def test_a_checkpoint_that_was_not_copied_to_its_end_is_not_one(url, machine, monkeypatch, refused):
    machine()
    here = fetched(url)
    checkpoint(here, 2)
    store, puts = _Store(url), itertools.count()
    put = store._system.put_file

    def put_file(*arguments):
        if next(puts) == refused:
            raise OSError("the network is gone")
        return put(*arguments)

    monkeypatch.setattr(store._system, "put_file", put_file)
    if refused < 3:
        with pytest.raises(OSError, match="the network is gone"):
            store.copy()
    else:
        store.copy()
    machine()
    assert complete_steps(fetched(url) / "checkpoints") == ([] if refused < 3 else [2])


def test_a_checkpoint_that_is_here_already_is_not_read_again_and_one_that_differs_is(url, machine, monkeypatch):
    machine()
    here = fetched(url)
    for step in (2, 4):
        checkpoint(here, step)
    _Store(url).copy()
    before = tree(here)
    (here / "checkpoints/4/hashes.json").write_text("{}")
    got: list[str] = []
    system = fsspec.filesystem("memory")
    get = type(system).get_file

    def get_file(self, theirs, ours):
        got.append(theirs)
        get(self, theirs, ours)

    monkeypatch.setattr(type(system), "get_file", get_file)
    assert tree(fetched(url)) == before
    assert {name.partition("checkpoints/")[2][0] for name in got if "checkpoints" in name} == {"4"}


def test_a_run_that_is_trained_here_is_read_as_it_is(url, machine):
    machine()
    here = fetched(url)
    (here / "run.json").write_text("newer than the store's")
    with run_directory.hold(here, print):
        assert tree(fetched(url)) == {"run.json": b"newer than the store's"}


def test_an_unknown_store_is_one_clear_line():
    with pytest.raises(UserError, match=r"nostore://bucket/run cannot be opened: Protocol not known: nostore"):
        fetched("nostore://bucket/run")


@pytest.mark.slow
def test_a_run_stopped_on_one_machine_resumes_on_the_next_with_the_weights_of_one_that_was_not(
    url, machine, small_data, tmp_path
):
    whole = train_recipe(small_recipe(), small_data, tmp_path / "whole")
    machine()
    heard = Heard()
    with pytest.raises(Stopped, match=f"--run {url} resumes"):
        train_recipe(small_recipe(), small_data, url, listener=heard, limits=Limits(max_minutes=1e-6))
    assert any("has no locks" in note for note in heard.of(str))
    machine()
    assert train_recipe(small_recipe(), small_data, url).weights_hash == whole.weights_hash
    machine()
    assert not local_copy(url).exists()
    assert open_run(url).evaluate().images == len(open_run(tmp_path / "whole").validation(None))
